/* A stand-in for libnvidia-ml.so.1, with the entry points that our inventory calls.
 *
 * FAKE_NVML_FILE names a text file that is read again at each call, so that a test
 * can change the machine under a running program. One word and its value a line:
 *
 *   hang                       every call sleeps
 *   crash                      every call ends the process
 *   driver_fault CODE          every call answers this NVML error
 *   gpu UUID                   starts a GPU, in the order of their indices
 *   name TEXT                  and so on, for the GPU above
 *   bus 00000000:01:00.0
 *   total_mb N, reserved_mb N, used_mb N
 *   utilisation PERCENT, temperature CELSIUS, power_mw N
 *   lost                       every call about it answers GPU_IS_LOST
 *   fails FIELD CODE           one kind of call answers this NVML error
 *   compute PID MB, graphics PID MB      MB may be N/A
 *   link BUS                   an NVLink to the device with this bus id
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INVALID_ARGUMENT = 2, TOO_SMALL = 7, LOST = 15 };
enum { MAX_GPUS = 16, MAX_ITEMS = 32, COMPUTE = 0, GRAPHICS = 1 };

typedef unsigned long long u64;
struct process { unsigned pid; u64 used; unsigned instance, compute_instance; };
struct list { int count; struct process items[MAX_ITEMS]; };
struct failure { char field[32]; int code; };
struct gpu {
    char uuid[96], name[96], bus[32], links[MAX_ITEMS][32];
    u64 total_mb, reserved_mb, used_mb;
    unsigned utilisation, temperature, power_mw;
    int is_lost, link_count, failure_count;
    struct failure failures[MAX_ITEMS];
    struct list processes[2];
};
struct machine { int fault, count; struct gpu gpus[MAX_GPUS]; };

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
struct utilisation { unsigned gpu, memory; };
struct temperature { unsigned version, sensor; int reading; };
struct pci {
    char legacy_bus[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static void add_process(struct list *list, const char *value) {
    char used[32] = "";
    struct process *process = &list->items[list->count++];
    sscanf(value, "%u %31s", &process->pid, used);
    process->used = strcmp(used, "N/A") ? strtoull(used, NULL, 10) << 20 : (u64)-1;
    process->instance = process->compute_instance = (unsigned)-1;
}

static void add_failure(struct gpu *gpu, const char *value) {
    struct failure *failure = &gpu->failures[gpu->failure_count++];
    sscanf(value, "%31s %d", failure->field, &failure->code);
}

static void read_gpu_line(struct gpu *gpu, const char *word, const char *value) {
    if (!strcmp(word, "name")) snprintf(gpu->name, sizeof gpu->name, "%s", value);
    else if (!strcmp(word, "bus")) snprintf(gpu->bus, sizeof gpu->bus, "%s", value);
    else if (!strcmp(word, "total_mb")) gpu->total_mb = strtoull(value, NULL, 10);
    else if (!strcmp(word, "reserved_mb")) gpu->reserved_mb = strtoull(value, NULL, 10);
    else if (!strcmp(word, "used_mb")) gpu->used_mb = strtoull(value, NULL, 10);
    else if (!strcmp(word, "utilisation")) gpu->utilisation = atoi(value);
    else if (!strcmp(word, "temperature")) gpu->temperature = atoi(value);
    else if (!strcmp(word, "power_mw")) gpu->power_mw = atoi(value);
    else if (!strcmp(word, "lost")) gpu->is_lost = 1;
    else if (!strcmp(word, "fails")) add_failure(gpu, value);
    else if (!strcmp(word, "compute")) add_process(&gpu->processes[COMPUTE], value);
    else if (!strcmp(word, "graphics")) add_process(&gpu->processes[GRAPHICS], value);
    else if (!strcmp(word, "link")) strncpy(gpu->links[gpu->link_count++], value, 31);
}

static void read_line(struct machine *machine, const char *word, const char *value) {
    if (!strcmp(word, "hang")) sleep(3600);
    else if (!strcmp(word, "crash")) raise(SIGKILL); /* and no core file */
    else if (!strcmp(word, "driver_fault")) machine->fault = atoi(value);
    else if (!strcmp(word, "gpu") && machine->count < MAX_GPUS) {
        struct gpu *gpu = &machine->gpus[machine->count++];
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    } else if (machine->count)
        read_gpu_line(&machine->gpus[machine->count - 1], word, value);
}

static struct machine *look(void) {
    static struct machine machine;
    char line[256];
    const char *path = getenv("FAKE_NVML_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(&machine, 0, sizeof machine);
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *value = strchr(line, ' ');
        if (value) *value++ = '\0';
        read_line(&machine, line, value ? value : "");
    }
    if (file) fclose(file);
    return &machine;
}

/* A handle is the index plus one, so that it is never NULL. */
static int ask(void *handle, const char *field, struct gpu **gpu) {
    struct machine *machine = look();
    size_t index = (size_t)handle - 1;
    if (machine->fault) return machine->fault;
    if (index >= (size_t)machine->count) return INVALID_ARGUMENT;
    *gpu = &machine->gpus[index];
    if ((*gpu)->is_lost) return LOST;
    for (int i = 0; i < (*gpu)->failure_count; i++)
        if (!strcmp((*gpu)->failures[i].field, field)) return (*gpu)->failures[i].code;
    return SUCCESS;
}

#define ASK(field)                                                                     \
    struct gpu *gpu;                                                                   \
    int code = ask(handle, field, &gpu);                                               \
    if (code) return code

int nvmlInitWithFlags(unsigned flags) { (void)flags; return look()->fault; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.00");
    return look()->fault;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    struct machine *machine = look();
    *count = machine->count;
    return machine->fault;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    struct gpu *gpu;
    *handle = (void *)(size_t)(index + 1);
    return ask(*handle, "handle", &gpu);
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    ASK("uuid");
    snprintf(text, size, "%s", gpu->uuid);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    ASK("name");
    snprintf(text, size, "%s", gpu->name);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
    ASK("memory_v2");
    memory->total = gpu->total_mb << 20;
    memory->reserved = gpu->reserved_mb << 20;
    memory->used = gpu->used_mb << 20;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
    ASK("memory");
    memory->total = gpu->total_mb << 20;
    memory->used = (gpu->used_mb + gpu->reserved_mb) << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, struct utilisation *rates) {
    ASK("utilisation");
    rates->gpu = gpu->utilisation;
    rates->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetTemperatureV(void *handle, struct temperature *temperature) {
    ASK("temperature");
    if ((code = ask(handle, "temperature_v", &gpu))) return code;
    temperature->reading = gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *reading) {
    ASK("temperature");
    (void)sensor;
    *reading = gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    ASK("power_w");
    *milliwatts = gpu->power_mw;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci) {
    ASK("pci");
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", gpu->bus);
    return SUCCESS;
}

/* As NVML does: with too little room only the number needed is told. */
static int copy_processes(struct list *list, unsigned *count, struct process *out) {
    unsigned room = *count;
    *count = list->count;
    if (room < *count) return TOO_SMALL;
    if (out) memcpy(out, list->items, list->count * sizeof *out);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count,
                                            struct process *out) {
    ASK("compute");
    return copy_processes(&gpu->processes[COMPUTE], count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned *count,
                                             struct process *out) {
    ASK("graphics");
    return copy_processes(&gpu->processes[GRAPHICS], count, out);
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *is_active) {
    ASK("nvlink");
    if (!gpu->link_count) return NOT_SUPPORTED;
    if (link >= (unsigned)gpu->link_count) return INVALID_ARGUMENT;
    *is_active = 1;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, struct pci *pci) {
    ASK("nvlink");
    if (link >= (unsigned)gpu->link_count) return INVALID_ARGUMENT;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", gpu->links[link]);
    return SUCCESS;
}
