"""What each reason means, and what to do next: the texts of docs/reasons.md."""

from typing import NamedTuple

from jobs.status import Reason, WaitReason


class Told(NamedTuple):
    """Two sentences: what it is, and what whoever reads it does next."""

    means: str
    do: str


WAITING: dict[WaitReason, Told] = {
    WaitReason.RESOURCES: Told(
        "Other jobs hold the GPUs, CPUs or memory that it needs.",
        "Wait until they end, or make the change that its explanation proposes.",
    ),
    WaitReason.PRIORITY: Told(
        "It is in line: jobs ahead of it come first, and what is free is kept for them.",
        "Wait, or ask for a shorter time limit, so that it can pass without delaying them.",
    ),
    WaitReason.QUOTA: Told(
        "You, your group or its own array already have as much running as is allowed.",
        "Wait until some of it has ended, or ask an operator for a higher limit.",
    ),
    WaitReason.DEPENDENCY: Told(
        "It waits until the jobs that it depends on have ended.",
        "Look at the jobs that it names; it goes into the line by itself.",
    ),
    WaitReason.BEGIN_TIME: Told(
        "It was asked not to begin before a time that is still to come.",
        "Nothing is to be done: it goes into the line at that time.",
    ),
    WaitReason.HELD: Told(
        "Its owner or an operator holds it back.",
        "Release it, or ask an operator to do so where an operator holds it.",
    ),
    WaitReason.DRAINING: Told(
        "The GPUs or the node that it needs are out of service, mostly by an operator.",
        "Read the reason that its text gives, and wait, or ask for another GPU.",
    ),
    WaitReason.FOREIGN_USE: Told(
        "Processes that GPU Jobs did not start use the GPU memory that it needs.",
        "Ask the person whom its page names to end them, or ask for less memory.",
    ),
    WaitReason.IMAGE_PULL: Told(
        "Its image is not on the node yet, and no GPU is held while it is fetched.",
        "Wait while the bytes go up; if a pull failed, its text says what to mend.",
    ),
    WaitReason.NODE_DOWN: Told(
        "No node that could run it is up.",
        "An operator sees whether the machine and its supervisor run.",
    ),
    WaitReason.SCHEDULER_DOWN: Told(
        "No scheduling pass was made for half a minute, so that no job starts.",
        "An operator sees whether the cluster (manage.py cluster) runs.",
    ),
    WaitReason.NEVER_FITS: Told(
        "The hardware has changed since it was submitted, and no node can hold it now.",
        "Cancel it and ask for less, or ask an operator whether the hardware comes back.",
    ),
}

_AGAIN = "It starts again by itself"

ENDINGS: dict[Reason, Told] = {
    Reason.COMPLETED: Told(
        "It ended well, with exit code 0.",
        "Fetch its result: the files that it left in /artifacts.",
    ),
    Reason.NONZERO_EXIT: Told(
        "Its program ended with an exit code other than 0.",
        "Read the end of its log, mend the program and submit it again.",
    ),
    Reason.CUDA_OOM: Told(
        "The memory of its GPU was not enough, by the words of its own log.",
        "Ask for a larger min_vram_mb, or let the program use less.",
    ),
    Reason.MEMORY_OOM: Told(
        "It used more main memory than it was given, and was killed.",
        "Ask for more memory_mb, or let the program use less.",
    ),
    Reason.IMAGE_NOT_FOUND: Told(
        "The registry has no image of that name.",
        "See whether name and tag are spelt right, and whether it was pushed.",
    ),
    Reason.IMAGE_AUTH: Told(
        "The registry does not let this site have the image.",
        "Ask an operator to log the node in (docker login), or use another image.",
    ),
    Reason.COMMAND_NOT_FOUND: Told(
        "The image has no such command.",
        "Give the full path of a program that is in the image.",
    ),
    Reason.NOT_EXECUTABLE: Told(
        "The command is there and can not be run.",
        "Make the file executable in the image, or name its interpreter first.",
    ),
    Reason.BAD_VOLUME: Told(
        "A folder that it mounts is not there, or can not be mounted.",
        "See whether the path of each volume is right on that node.",
    ),
    Reason.VALIDATOR_REJECTED: Told(
        "A check of its result said no.",
        "Read what the check found, and submit it again with other parameters.",
    ),
    Reason.DEPENDENCY_FAILED: Told(
        "A job that had to succeed before it could start did not.",
        "Mend that job first, then submit both again.",
    ),
    Reason.NODE_LOST: Told(
        "The machine restarted while it ran.",
        f"{_AGAIN}; if that happens often, an operator sees to the machine.",
    ),
    Reason.CONTAINER_GONE: Told(
        "Somebody removed its container.",
        f"{_AGAIN}; ask people to cancel jobs here instead of using Docker.",
    ),
    Reason.INTERRUPTED: Told(
        "Docker stopped it although nobody here asked, or was away when it ended.",
        f"{_AGAIN}; an operator sees in Docker's log who stopped it.",
    ),
    Reason.DAEMON_FAULT: Told(
        "Docker did not do what it was asked to.",
        f"{_AGAIN}; an operator reads Docker's log on that node.",
    ),
    Reason.LAUNCH_FAULT: Told(
        "Its container could not be started, or five attempts in a row were cut short.",
        "One start that failed is tried again; if the job has failed, an operator reads its events.",
    ),
    Reason.GPU_LOST: Told(
        "The driver lost the GPU on which it ran.",
        f"{_AGAIN} on another GPU; an operator sees to the one that was lost.",
    ),
    Reason.DISK_FULL: Told(
        "The node's disk was full.",
        f"{_AGAIN}; an operator makes room on that node.",
    ),
    Reason.REGISTRY_UNREACHABLE: Told(
        "The registry of its image did not answer.",
        f"{_AGAIN}; an operator sees whether that node reaches the registry.",
    ),
    Reason.KILLED_EXTERNALLY: Told(
        "It was killed by signal 9, and neither GPU Jobs nor Docker sent it.",
        f"{_AGAIN}; an operator sees in the kernel's log whether memory ran out.",
    ),
    Reason.TIMED_OUT: Told(
        "It ran to its time limit and was stopped.",
        "Ask for a larger timeout_s, or let the program save its work and go on from there.",
    ),
    Reason.CANCELLED_BY_USER: Told(
        "Its owner cancelled it.",
        "Submit it again if it is still wanted.",
    ),
    Reason.CANCELLED_BY_OPERATOR: Told(
        "An operator cancelled it.",
        "Ask the operator whom its events name, before you submit it again.",
    ),
    Reason.POLICY_DENIED: Told(
        "The node refused what it asks for, such as a folder that may not be mounted.",
        "Ask for what the text says is allowed, or ask an operator to allow it.",
    ),
    Reason.SCRATCH_FULL: Told(
        "It wrote more into its home or temporary folder than a job may.",
        "Write less there, or keep large files in a volume.",
    ),
    Reason.ARTIFACT_CAP: Told(
        "It left more in /artifacts than a job may keep.",
        "Leave only what is needed, or keep large files in a volume.",
    ),
    Reason.VRAM_EXCEEDED: Told(
        "It used more GPU memory than it had asked for, beside other jobs.",
        "Ask for as much min_vram_mb as it needs, or for a GPU of its own.",
    ),
    Reason.TIERS_EXHAUSTED: Told(
        "No model that its policy allows came to a result that was accepted.",
        "Read why each was rejected, and change the task or ask for a wider policy.",
    ),
    Reason.REVIEW_REJECTED: Told(
        "A person looked at its result and rejected it.",
        "Read what the reviewer wrote, and submit it again with that in mind.",
    ),
    Reason.REVIEW_EXPIRED: Told(
        "Nobody looked at its result in the time that its policy gives.",
        "Ask for a reviewer, and submit it again.",
    ),
    Reason.NEVER_FITS: Told(
        "No node here can hold what it asks for.",
        "Ask for what one of the nodes has.",
    ),
    Reason.UNKNOWN: Told(
        "It ended, and nobody saw with which exit code.",
        "Read the end of its log, and submit it again if the work is not done.",
    ),
}
