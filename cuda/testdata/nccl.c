/* An NCCL that writes down its calls. ncclConfig_t is that of NCCL 2.18, as its header declares it. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct {
	size_t size;
	unsigned int magic, version;
	int blocking, cgaClusterSize, minCTAs, maxCTAs;
	const char *netName;
	int splitShare;
} ncclConfig_t;

static char text[1 << 16];
static int pending, version = 22203;
static const char *broken = "";
#define LOG(...) snprintf(text + strlen(text), sizeof text - strlen(text), __VA_ARGS__)
const char *nccl_log(void) { return text; }
const char *nccl_age(void) { version = 21005; return ""; }
const char *nccl_break(void) { broken = "NET/IB: got completion from peer with status 12"; return ""; }

int ncclGetVersion(int *v) { *v = version; return 0; }
const char *ncclGetErrorString(int s) { return s == 4 ? "invalid argument" : s == 6 ? "remote process exited or there was a network error" : "other"; }
const char *ncclGetLastError(void *c) { return broken; }
int ncclGetUniqueId(ncclUniqueId *id) { memset(id, 'i', sizeof *id); return 0; }
int ncclCommInitRankConfig(void **c, int ranks, ncclUniqueId id, int rank, ncclConfig_t *g) {
	LOG("init %d of %d id %c%c size %d magic %x version %d blocking %d", rank, ranks, id.internal[0], id.internal[127], (int)(g->size - sizeof *g), g->magic, g->version, g->blocking);
	LOG(" defaults %d%d%d%d%d\n", g->cgaClusterSize == INT_MIN, g->minCTAs == INT_MIN, g->maxCTAs == INT_MIN, g->splitShare == INT_MIN, g->netName == NULL);
	*c = (void *)0xc0;
	pending = 2;
	return 7;
}
int ncclCommGetAsyncError(void *c, int *s) { *s = *broken ? 6 : pending-- > 0 ? 7 : 0; return 0; }
int ncclCommFinalize(void *c) { LOG("finalize %p\n", c); pending = 1; return 7; }
int ncclCommDestroy(void *c) { LOG("destroy %p\n", c); return 0; }
int ncclCommAbort(void *c) { LOG("abort %p\n", c); return 0; }
int ncclAllReduce(const void *x, void *y, size_t n, int t, int op, void *c, void *s) { LOG("reduce %p %p %zu type %d op %d %p %p\n", x, y, n, t, op, c, s); return 0; }
int ncclAllGather(const void *x, void *y, size_t n, int t, void *c, void *s) { LOG("gather %p %p %zu type %d %p %p\n", x, y, n, t, c, s); return 0; }
int ncclSend(const void *x, size_t n, int t, int peer, void *c, void *s) { LOG("send %p %zu type %d to %d %p %p\n", x, n, t, peer, c, s); return peer == 9 ? 4 : 0; }
int ncclRecv(void *y, size_t n, int t, int peer, void *c, void *s) { LOG("recv %p %zu type %d from %d %p %p\n", y, n, t, peer, c, s); return 0; }
int ncclGroupStart(void) { LOG("group\n"); return 0; }
int ncclGroupEnd(void) { LOG("end\n"); pending = 1; return 7; }
