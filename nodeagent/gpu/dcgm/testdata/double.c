/* A stand-in for the manager's library over two devices, with the ABI of the
 * headers that go-dcgm ships. The environment says what is wrong: DCGM_DOUBLE
 * holds words (noprof, away, lost1, stranger, mig0). */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "dcgm_agent.h"
#include "dcgm_structs.h"
#include "dcgm_fields.h"

static int word(const char *w) {
	const char *e = getenv("DCGM_DOUBLE");
	return e && strstr(e, w);
}
static long long energy = 1000;
static int open_groups, open_watches;

const char *errorString(dcgmReturn_t r) { return r == DCGM_ST_CONNECTION_NOT_VALID ? "The connection to the host engine is not valid" : "some DCGM error"; }
dcgmReturn_t dcgmInit(void) { return DCGM_ST_OK; }
dcgmReturn_t dcgmShutdown(void) { return DCGM_ST_OK; }
dcgmReturn_t dcgmStartEmbedded(dcgmOperationMode_t m, dcgmHandle_t *h) { *h = 1; return DCGM_ST_OK; }
dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t h) { return open_groups || open_watches ? DCGM_ST_IN_USE : DCGM_ST_OK; }
dcgmReturn_t dcgmConnect_v2(const char *a, dcgmConnectV2Params_t *p, dcgmHandle_t *h) {
	*h = 1;
	return word("away") || strcmp(a, "localhost:5555") ? DCGM_ST_CONNECTION_NOT_VALID : DCGM_ST_OK;
}
dcgmReturn_t dcgmDisconnect(dcgmHandle_t h) { open_groups = open_watches = 0; return DCGM_ST_OK; }
dcgmReturn_t dcgmGetEntityGroupEntities(dcgmHandle_t h, dcgm_field_entity_group_t g, dcgm_field_eid_t *e, int *n, unsigned int f) {
	e[0] = 1; e[1] = 0; /* the manager's order is its own */
	*n = 2;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmGetGpuInstanceHierarchy(dcgmHandle_t h, dcgmMigHierarchy_v2 *m) {
	m->count = 2;
	for (int i = 0; i < 2; i++) {
		dcgmMigHierarchyInfo_v2 *e = &m->entityList[i];
		e->entity.entityGroupId = DCGM_FE_GPU_I;
		e->entity.entityId = 70 + i;
		e->parent.entityGroupId = DCGM_FE_GPU;
		e->parent.entityId = 0;
		e->info.nvmlInstanceId = 2 - i;
	}
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmGroupCreate(dcgmHandle_t h, dcgmGroupType_t t, const char *n, dcgmGpuGrp_t *g) { *g = 5; open_groups++; return DCGM_ST_OK; }
dcgmReturn_t dcgmGroupAddEntity(dcgmHandle_t h, dcgmGpuGrp_t g, dcgm_field_entity_group_t t, dcgm_field_eid_t e) { return DCGM_ST_OK; }
dcgmReturn_t dcgmGroupDestroy(dcgmHandle_t h, dcgmGpuGrp_t g) { open_groups--; return DCGM_ST_OK; }
dcgmReturn_t dcgmFieldGroupCreate(dcgmHandle_t h, int n, const unsigned short *f, const char *name, dcgmFieldGrp_t *g) {
	*g = f[0] >= 1001 ? 8 : 7;
	open_groups++;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmFieldGroupDestroy(dcgmHandle_t h, dcgmFieldGrp_t g) { open_groups--; return DCGM_ST_OK; }
dcgmReturn_t dcgmWatchFields(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f, long long us, double age, int n) {
	if (f == 8 && word("noprof")) return DCGM_ST_REQUIRES_ROOT;
	open_watches++;
	return DCGM_ST_OK;
}
dcgmReturn_t dcgmUnwatchFields(dcgmHandle_t h, dcgmGpuGrp_t g, dcgmFieldGrp_t f) { open_watches--; return DCGM_ST_OK; }
dcgmReturn_t dcgmUpdateAllFields(dcgmHandle_t h, int wait) { return DCGM_ST_OK; }
dcgmReturn_t dcgmEntitiesGetLatestValues(dcgmHandle_t h, dcgmGroupEntityPair_t *e, unsigned int ne, unsigned short *f, unsigned int nf, unsigned int flags, dcgmFieldValue_v2 *v) {
	if (word("away")) return DCGM_ST_CONNECTION_NOT_VALID;
	for (unsigned int i = 0; i < ne; i++)
		for (unsigned int j = 0; j < nf; j++, v++) {
			memset(v, 0, sizeof *v);
			v->entityGroupId = e[i].entityGroupId;
			v->entityId = e[i].entityId;
			v->fieldId = f[j];
			v->fieldType = DCGM_FT_INT64;
			v->ts = 1;
			if (f[j] == DCGM_FI_DEV_UUID) {
				v->fieldType = DCGM_FT_STRING;
				snprintf(v->value.str, 64, "GPU-00000000-0000-0000-0000-00000000000%d", word("stranger") ? 9 : (int)e[i].entityId);
				continue;
			}
			if (e[i].entityGroupId == DCGM_FE_GPU && e[i].entityId == 1 && word("lost1")) { v->status = DCGM_ST_GPU_IS_LOST; continue; }
			switch (f[j]) {
			case DCGM_FI_DEV_POWER_USAGE: v->fieldType = DCGM_FT_DOUBLE; v->value.dbl = 412.3456; break;
			case DCGM_FI_DEV_GPU_UTIL: v->value.i64 = 93; break;
			case DCGM_FI_DEV_ENC_UTIL: v->value.i64 = DCGM_INT32_BLANK; break;
			case DCGM_FI_DEV_DEC_UTIL: v->value.i64 = DCGM_INT64_NOT_SUPPORTED; break;
			case DCGM_FI_DEV_FB_USED: v->value.i64 = 1000; break;
			case DCGM_FI_DEV_FB_FREE: v->value.i64 = 2000; break;
			case DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION: v->value.i64 = energy += 3; break;
			case DCGM_FI_PROF_GR_ENGINE_ACTIVE: v->fieldType = DCGM_FT_DOUBLE; v->value.dbl = 1.0000004; break;
			case DCGM_FI_PROF_SM_ACTIVE: v->fieldType = DCGM_FT_DOUBLE; v->value.dbl = 0.5; break;
			case DCGM_FI_PROF_SM_OCCUPANCY: v->fieldType = DCGM_FT_DOUBLE; v->value.dbl = DCGM_FP64_NOT_SUPPORTED; break;
			default: v->value.i64 = DCGM_INT64_BLANK;
			}
		}
	return DCGM_ST_OK;
}
