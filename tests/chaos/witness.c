/* Runs a job's program and tells of it, so that nothing rests on the product's word:
 *
 *   witness x|s COMMAND
 *
 * appends a line "JOB ATTEMPT TOKEN NANOSECONDS" to starts.log beside this program, and
 * holds a lock on the file of each GPU given to it: a shared one for `s`. The kernel
 * frees it with the last process of the job. A lock that is held by another job that
 * does not bear it is a line "JOB ATTEMPT GPU" in conflicts.log.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/data/chaos/"

static const char *given(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

static void tell(const char *file, const char *text) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s %s %s\n", given("GPUJOBS_JOB_ID"),
                          given("GPUJOBS_ATTEMPT"), text);
    int log = open(file, O_WRONLY | O_APPEND);
    /* At once, so that lines of two jobs never mix. */
    if (log < 0 || write(log, line, length) != length)
        exit(97);
    close(log);
}

static void tell_start(void) {
    unsigned long long token;
    struct timespec now;
    char text[64];
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        exit(98);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%016llx %lld%09ld", token, (long long)now.tv_sec,
             now.tv_nsec);
    tell(FOLDER "starts.log", text);
}

static void hold(const char *gpu, int kind) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s", gpu);
    /* Left open: what is executed next inherits it. */
    int lock = open(path, O_RDONLY);
    if (lock < 0)
        exit(99);
    if (flock(lock, kind | LOCK_NB) != 0)
        tell(FOLDER "conflicts.log", gpu);
}

int main(int count, char **arguments) {
    if (count != 3)
        return 96;
    int kind = arguments[1][0] == 'x' ? LOCK_EX : LOCK_SH;
    char *gpus = strdup(given("GPUJOBS_GPU_UUIDS"));
    tell_start();
    for (char *gpu = strtok(gpus, ","); gpu; gpu = strtok(NULL, ","))
        hold(gpu, kind);
    execl("/bin/sh", "sh", "-c", arguments[2], (char *)NULL);
    return 95;
}
