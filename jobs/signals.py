from django.dispatch import Signal

# Sent after the commit that queued a job (also again). The one hidden wire:
# scheduler/apps.py connects it to the wake-up of the scheduler.
job_queued = Signal()
