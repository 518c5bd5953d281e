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
 *   mig_mode ON                the GPU knows of MIG; 1: it is split
 *   mig SLOT UUID              starts an instance of the last GPU; lines follow as above
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INVALID_ARGUMENT = 2, TOO_SMALL = 7, LOST = 15 };
enum { NOT_FOUND = 6, MIG_SLOTS = 7 };
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
    /* Of an instance the handle of its card. */
    size_t card;
    int knows_mig, is_split;
    unsigned slot;
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
    else if (!strcmp(word, "mig_mode")) gpu->knows_mig = 1, gpu->is_split = atoi(value);
    else if (!strcmp(word, "link")) strncpy(gpu->links[gpu->link_count++], value, 31);
}

static void add_instance(struct machine *machine, const char *value) {
    size_t card = machine->count;
    struct gpu *gpu = &machine->gpus[machine->count++];
    while (machine->gpus[card - 1].card) card--;
    gpu->card = card;
    sscanf(value, "%u %95s", &gpu->slot, gpu->uuid);
}

static void read_line(struct machine *machine, const char *word, const char *value) {
    if (!strcmp(word, "hang")) sleep(3600);
    else if (!strcmp(word, "crash")) raise(SIGKILL); /* and no core file */
    else if (!strcmp(word, "driver_fault")) machine->fault = atoi(value);
    else if (!strcmp(word, "gpu") && machine->count < MAX_GPUS) {
        struct gpu *gpu = &machine->gpus[machine->count++];
        snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value);
    } else if (!strcmp(word, "mig") && machine->count && machine->count < MAX_GPUS)
        add_instance(machine, value);
    else if (machine->count)
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

/* What only a whole card can tell. */
static int is_of_the_card(const char *field) {
    const char *fields[] = {"utilisation", "temperature", "power_w", "pci", "nvlink",
                            "mig_mode", "mig_count", "mig_handle"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(fields[i], field)) return 1;
    return 0;
}

/* A handle is the index in the file plus one, so that it is never NULL. */
static int ask(void *handle, const char *field, struct gpu **gpu) {
    struct machine *machine = look();
    size_t index = (size_t)handle - 1;
    if (machine->fault) return machine->fault;
    if (index >= (size_t)machine->count) return INVALID_ARGUMENT;
    *gpu = &machine->gpus[index];
    if ((*gpu)->is_lost) return LOST;
    if ((*gpu)->card && is_of_the_card(field)) return NOT_SUPPORTED;
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
    *count = 0;
    for (int i = 0; i < machine->count; i++) *count += !machine->gpus[i].card;
    return machine->fault;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    struct machine *machine = look();
    struct gpu *gpu;
    size_t found = 0;
    for (int i = 0; i < machine->count && !found; i++)
        if (!machine->gpus[i].card && !index--) found = i + 1;
    *handle = (void *)found;
    return ask(*handle, "handle", &gpu);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    ASK("mig_mode");
    if (!gpu->knows_mig) return NOT_SUPPORTED;
    *current = *pending = gpu->is_split;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    ASK("mig_count");
    *count = gpu->knows_mig ? MIG_SLOTS : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned slot, void **instance) {
    ASK("mig_handle");
    struct machine *machine = look();
    for (int i = 0; i < machine->count; i++)
        if (machine->gpus[i].card == (size_t)handle && machine->gpus[i].slot == slot) {
            *instance = (void *)(size_t)(i + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
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
