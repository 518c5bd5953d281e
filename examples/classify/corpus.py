"""Sixty messages to a help desk of a GPU cluster, by what they are about."""

CORPUS = {
    "bug": """
        the job crashes with a segmentation fault
        my training stops with an error after one epoch
        the page shows an internal error when I open the log
        the container exits at once and says nothing
        I get a traceback when the data loader starts
        the scheduler never starts my job although a gpu is free
        the download of the artifact fails half way
        the log is cut off in the middle of a line
        wrong exit code is shown for a job that succeeded
        the gpu is not visible inside the container
        loss becomes nan since the driver was updated
        the process hangs and does not react to cancel
        the web page does not load and shows a blank screen
        my job failed but the page says it succeeded
        the api answers with status 500 for every request
        cuda error device side assert triggered in my kernel
        the array index is missing in the environment
        the upload breaks with a broken pipe
        it crashed again with the same stack trace
        nothing works since this morning everything fails
    """,
    "quota": """
        please raise my limit to four gpus
        I need more gpu hours for the deadline next week
        my group has used all of its hours this month
        can I get a higher priority for my paper
        how many gpus may I use at once
        may our team have two more a100 for a month
        my quota is too small for this experiment
        please let me queue more than a hundred jobs
        we would like to reserve a node for our course
        the limit of running jobs is too low for my sweep
        could you extend my time limit to three days
        I ask for access to the large gpus
        our project needs more storage for artifacts
        please give my student permission to submit jobs
        who can increase the vram that I may hold
        my allocation ran out before the end of the month
        is it possible to get more memory for each job
        we need eight gpus on one node for a week
        please approve my request for additional hours
        the group limit blocks my colleagues can it be raised
    """,
    "howto": """
        how do I mount a dataset in my container
        which image should I use for pytorch
        where do I find the files that my job left
        how can I see why my job waits
        is there a way to run a job every night
        how do I pass a secret to my program
        what is the command to follow a log
        how can I share one gpu between two jobs
        where is the documentation of the api
        how do I submit an array of a hundred tasks
        can I use my own docker image and how
        how do I make a job wait for another one
        what does the reason priority mean
        how can I look at the gpu memory of my job
        how do I write results so that they are kept
        which python version is in the standard image
        how do I cancel all of my jobs at once
        how can I get an api token for my script
        where can I change my password
        how do I choose the node on which my job runs
    """,
}


def messages() -> tuple[list[str], list[str]]:
    """Texts, and of each its label."""
    pairs = [
        (line.strip(), label)
        for label, lines in CORPUS.items()
        for line in lines.strip().splitlines()
    ]
    return [text for text, _ in pairs], [label for _, label in pairs]
