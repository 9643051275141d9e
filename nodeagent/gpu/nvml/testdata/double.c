/* A stand-in for the driver library: two devices joined by four NVLinks, with
 * the ABI of the header that go-nvml ships. The environment says what is wrong
 * with them: DOUBLE holds words (nodriver, denied, updated, closed, nodevice, lost1, mig0, lockonly,
 * nopermission, clockless), DOUBLE_XIDS error numbers for device 0, and DOUBLE_CLOCKS names
 * files that hold the clocks that were set, as a device holds them when the
 * process that set them is gone. With -DOLD it lacks what old drivers lack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "nvml.h"

struct nvmlDevice_st { int index, mig; };
static struct nvmlDevice_st dev[2] = {{0, 0}, {1, 0}}, slice[2] = {{0, 1}, {0, 2}};
static unsigned long long energy = 5000;
static int xids_given;

static int word(const char *w) {
	const char *e = getenv("DOUBLE");
	return e && strstr(e, w);
}
static nvmlReturn_t answer(nvmlDevice_t d) {
	return d.handle->index == 1 && word("lost1") ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}
#define GIVE(d, out, value) do { *(out) = (value); return answer(d); } while (0)

nvmlReturn_t nvmlInit_v2(void) {
	xids_given = 0;
	return word("nodriver") ? NVML_ERROR_DRIVER_NOT_LOADED : word("denied") ? NVML_ERROR_NO_PERMISSION :
		word("updated") ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t r) { return r == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "some error"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned int n) { snprintf(v, n, "570.01"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { *n = word("nodevice") ? 0 : 2; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d) {
	d->handle = &dev[i];
	return word("closed") ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *u, unsigned int n) {
	if (d.handle->mig) snprintf(u, n, "MIG-00000000-0000-0000-0000-00000000000%d", d.handle->mig);
	else snprintf(u, n, "GPU-00000000-0000-0000-0000-00000000000%d", d.handle->index);
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *u, unsigned int n) {
	snprintf(u, n, d.handle->mig ? "Double 80GB MIG 3g.40gb" : "Double 80GB");
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *n) { GIVE(d, n, d.handle->index + 4); }
static void pci(int index, nvmlPciInfo_t *p) {
	memset(p, 0, sizeof *p);
	p->bus = 0x1b + index;
	snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", p->bus);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) { pci(d.handle->index, p); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	m->total = (d.handle->mig ? 40ULL : 80ULL) << 30;
	m->used = 1ULL << 30;
	m->free = m->total - m->used;
	return answer(d);
}
/* The clocks of a device: how they were set (a, l or nothing), memory, graphics. */
struct clocks { char how; unsigned int memory, graphics; };
static struct clocks now[2];
static const char *clocks_file(int i) {
	static char path[4096];
	const char *e = getenv("DOUBLE_CLOCKS");
	if (!e) return NULL;
	snprintf(path, sizeof path, "%s%d", e, i);
	return path;
}
static struct clocks *clocks(nvmlDevice_t d) {
	struct clocks *c = &now[d.handle->index];
	const char *path = clocks_file(d.handle->index);
	FILE *f = path ? fopen(path, "r") : NULL;
	if (path) memset(c, 0, sizeof *c);
	if (f) { fscanf(f, "%c %u %u", &c->how, &c->memory, &c->graphics); fclose(f); }
	return c;
}
static nvmlReturn_t set(nvmlDevice_t d, char how, unsigned int memory, unsigned int graphics) {
	struct clocks *c = clocks(d);
	if (word("nopermission")) return NVML_ERROR_NO_PERMISSION;
	if (answer(d)) return answer(d);
	c->how = how;
	if (memory || how == 0) c->memory = memory;
	if (graphics || how == 0) c->graphics = graphics;
	const char *path = clocks_file(d.handle->index);
	FILE *f;
	if (path && how == 0) remove(path);
	else if (path && (f = fopen(path, "w"))) { fprintf(f, "%c %u %u\n", c->how, c->memory, c->graphics); fclose(f); }
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t d, unsigned int *n, unsigned int *list) {
	if (word("clockless")) return NVML_ERROR_NOT_SUPPORTED;
	if (*n < 2) { *n = 2; return NVML_ERROR_INSUFFICIENT_SIZE; }
	*n = 2; list[0] = 2619; list[1] = 1593;
	return answer(d);
}
nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t d, unsigned int memory, unsigned int *n, unsigned int *list) {
	unsigned int most = memory == 2619 ? 1980 : 1200, i;
	if (memory != 2619 && memory != 1593) return NVML_ERROR_NOT_FOUND;
	if (*n < 4) { *n = 4; return NVML_ERROR_INSUFFICIENT_SIZE; }
	for (i = 0; i < 4; i++) list[i] = most - 300 * i;
	*n = 4;
	return answer(d);
}
nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t d, unsigned int memory, unsigned int graphics) {
	if (word("lockonly")) return NVML_ERROR_NOT_SUPPORTED;
	if ((memory != 2619 && memory != 1593) || (memory == 2619 ? 1980 : 1200) < graphics || graphics < 300) return NVML_ERROR_INVALID_ARGUMENT;
	return set(d, 'a', memory, graphics);
}
nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t d) { return word("lockonly") ? NVML_ERROR_NOT_SUPPORTED : set(d, 0, 0, 0); }
nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t d, nvmlClockType_t t, unsigned int *n) {
	struct clocks *c = clocks(d);
	if (word("lockonly")) return NVML_ERROR_NOT_SUPPORTED;
	GIVE(d, n, t == NVML_CLOCK_MEM ? (c->memory ? c->memory : 2619) : (c->graphics ? c->graphics : 1980));
}
nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t d, nvmlClockType_t t, unsigned int *n) { GIVE(d, n, t == NVML_CLOCK_MEM ? 2619 : 1980); }
nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t d, unsigned int low, unsigned int high) { return set(d, 'l', 0, high); }
nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t d) { return set(d, 0, 0, 0); }
nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t d, unsigned int low, unsigned int high) { return set(d, 'l', high, 0); }
nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t d) { return set(d, 0, 0, 0); }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned int *n) {
	struct clocks *c = clocks(d);
	GIVE(d, n, t == NVML_CLOCK_SM ? (c->graphics ? c->graphics : 1980) : (c->memory ? c->memory : 2619));
}
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *n) { GIVE(d, n, nvmlClocksThrottleReasonSwPowerCap); }
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t s, unsigned int *n) { GIVE(d, n, 61); }
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *n) { GIVE(d, n, 412345); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned int *n) { GIVE(d, n, 700000); }
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *n) { GIVE(d, n, energy += 7); }
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) { u->gpu = 93; u->memory = 41; return answer(d); }
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *l) { *l = NVML_TOPOLOGY_NODE; return NVML_SUCCESS; }

static nvmlReturn_t running(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *p) {
	if (*n < 2) { *n = 2; return NVML_ERROR_INSUFFICIENT_SIZE; }
	*n = 2;
	memset(p, 0, 2 * sizeof *p);
	p[0].pid = 4242; p[0].usedGpuMemory = 3ULL << 30;
	p[1].pid = 4243; p[1].usedGpuMemory = ~0ULL;
	return answer(d);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *p) { return running(d, n, p); }
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *p) { *n = 0; return NVML_SUCCESS; }

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) { s->handle = (struct nvmlEventSet_st *)1; return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long t, nvmlEventSet_t s) { return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned int ms) {
	const char *list = getenv("DOUBLE_XIDS");
	for (int i = 0; list && *list; i++) {
		char *end;
		unsigned long xid = strtoul(list, &end, 10);
		if (i == xids_given) {
			memset(e, 0, sizeof *e);
			e->device.handle = &dev[0];
			e->eventType = nvmlEventTypeXidCriticalError;
			e->eventData = xid;
			xids_given++;
			return NVML_SUCCESS;
		}
		list = *end == ',' ? end + 1 : end;
	}
	return NVML_ERROR_TIMEOUT;
}

#ifndef OLD
nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t d, unsigned int *n) { GIVE(d, n, 3); }
nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t d, unsigned int *n, unsigned int *us) { *us = 1; GIVE(d, n, 5); }
nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t d, unsigned int *n, unsigned int *us) { *us = 1; GIVE(d, n, 6); }
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, unsigned long long *n) { GIVE(d, n, 10 * t + c); }
nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned int *corr, unsigned int *unc, unsigned int *pending, unsigned int *failed) {
	*corr = 1; *unc = 2; *pending = 1; *failed = 0;
	return answer(d);
}
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *v) {
	for (int i = 0; i < n; i++) {
		v[i].nvmlReturn = NVML_SUCCESS;
		v[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		v[i].value.ullVal = v[i].fieldId;
		if (v[i].fieldId == NVML_FI_DEV_MEMORY_TEMP) { v[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT; v[i].value.uiVal = 66; }
	}
	return answer(d);
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int l, nvmlEnableState_t *on) { *on = l < 4; return l < 4 ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT; }
nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int l, nvmlPciInfo_t *p) { pci(1 - d.handle->index, p); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v2_t *p) { *n = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v1_t *p) { *n = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *now, unsigned int *later) { *now = *later = d.handle->index == 0 && word("mig0"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *n) { *n = 7; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int i, nvmlDevice_t *m) {
	if (i > 1) return NVML_ERROR_NOT_FOUND;
	m->handle = &slice[i];
	return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *n) { *n = d.handle->mig; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *n) { *n = 0; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a) {
	memset(a, 0, sizeof *a);
	a->gpuInstanceSliceCount = a->computeInstanceSliceCount = 3;
	a->memorySizeMB = 40 * 1024;
	return NVML_SUCCESS;
}
#endif
