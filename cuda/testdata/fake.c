/* A driver and a cublasLt that do nothing but log what they are asked, in words. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];
static int used;
const char *fake_log(void) { return text; }
static void say(const char *f, ...) {
	va_list a;
	va_start(a, f);
	used += vsnprintf(text + used, sizeof text - used, f, a);
	va_end(a);
}

#define OK(name) int name(void) { return 0; }
OK(cuGetErrorString) OK(cuCtxSynchronize) OK(cuFuncGetAttribute)
int cuInit(unsigned f) { say("init %u\n", f); return 0; }
int cuDriverGetVersion(int *v) { *v = 12040; return 0; }
int cuGetErrorName(int e, const char **s) { *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : e == 218 ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR"; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i + 40; return 0; }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Fake %d", d); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 1ull << 36; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 9 : a == 76 ? 0 : a * 10; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0xc0; say("retain %d\n", d); return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { say("release %d\n", d); return 0; }
int cuCtxSetCurrent(void *c) { say("current %p\n", c); return 0; }
int cuCtxPushCurrent_v2(void *c) { say("push %p\n", c); return c == (void *)0xbad ? 201 : 0; }
int cuCtxPopCurrent_v2(void **c) { *c = (void *)0xc7; say("pop\n"); return 0; }
int cuCtxGetDevice(int *d) { *d = 40; return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = 5; *t = 9; return 0; }
int cuMemAlloc_v2(uint64_t *p, size_t n) { if (n > 1u << 30) return 2; *p = 0x7000; say("alloc %zu\n", n); return 0; }
int cuMemFree_v2(uint64_t p) { say("free %llx\n", (unsigned long long)p); return 0; }
static char host[64];
int cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = host; say("hostalloc %zu %u\n", n, f); return 0; }
int cuMemFreeHost(void *p) { say("hostfree %d\n", p == host); return 0; }
int cuMemcpyHtoDAsync_v2(uint64_t d, const void *s, size_t n, void *st) { say("htod %llx %.*s %p\n", (unsigned long long)d, (int)n, (char *)s, st); return 0; }
int cuMemcpyDtoHAsync_v2(void *d, uint64_t s, size_t n, void *st) { memset(d, 'x', n); say("dtoh %llx %zu %p\n", (unsigned long long)s, n, st); return 0; }
int cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t s, size_t n, void *st) { say("dtod %llx %llx %zu %p\n", (unsigned long long)d, (unsigned long long)s, n, st); return 0; }
int cuMemsetD8Async(uint64_t d, unsigned char v, size_t n, void *st) { say("fill8 %llx %u %zu %p\n", (unsigned long long)d, v, n, st); return 0; }
int cuMemsetD32Async(uint64_t d, unsigned v, size_t n, void *st) { say("fill32 %llx %u %zu %p\n", (unsigned long long)d, v, n, st); return 0; }
int cuStreamCreate(void **s, unsigned f) { *s = (void *)0x51; say("stream %u\n", f); return 0; }
int cuStreamDestroy_v2(void *s) { say("streamfree %p\n", s); return 0; }
int cuStreamSynchronize(void *s) { say("sync %p\n", s); return 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned f) { say("wait %p %p %u\n", s, e, f); return 0; }
int cuEventCreate(void **e, unsigned f) { *e = (void *)0xe1; say("event %u\n", f); return 0; }
int cuEventRecord(void *e, void *s) { say("record %p %p\n", e, s); return 0; }
int cuEventQuery(void *e) { return e == (void *)0xe1 ? 600 : 0; }
int cuEventSynchronize(void *e) { say("eventsync %p\n", e); return 0; }
int cuEventDestroy_v2(void *e) { say("eventfree %p\n", e); return 0; }
int cuEventElapsedTime_v2(float *ms, void *a, void *b) { *ms = 1.5f; say("elapsed %p %p\n", a, b); return 0; }
int cuModuleLoadDataEx(void **m, const char *image, unsigned n, int *o, void **v) {
	say("load '%s' options", image);
	for (unsigned i = 0; i < n; i++) say(" %d", o[i]);
	say(" sizes %d %d\n", (int)(uintptr_t)v[1], (int)(uintptr_t)v[3]);
	if (strcmp(image, "bad") == 0) { strcpy(v[0], "ptxas line 3: no"); return 218; }
	*m = (void *)0x30;
	return 0;
}
int cuModuleUnload(void *m) { say("unload %p\n", m); return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = (void *)0xf0; say("function %p %s\n", m, name); return 0; }
int cuFuncSetAttribute(void *f, int a, int v) { say("setattr %p %d %d\n", f, a, v); return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, void *s, void **params, void **extra) {
	say("launch %p %u,%u,%u %u,%u,%u %u %p params %d args", f, gx, gy, gz, bx, by, bz, sh, s, params != 0);
	if ((uintptr_t)extra[0] != 1 || (uintptr_t)extra[2] != 2 || extra[4]) return 1;
	size_t n = *(size_t *)extra[3];
	for (size_t i = 0; i < n / 8; i++) say(" %llx", ((unsigned long long *)extra[1])[i]);
	say("\n");
	return 0;
}
int cuStreamBeginCapture_v2(void *s, int mode) { say("capture %p %d\n", s, mode); return 0; }
int cuStreamEndCapture(void *s, void **g) { *g = (void *)0x90; say("endcapture %p\n", s); return 0; }
int cuGraphGetNodes(void *g, void **nodes, size_t *n) { *n = 3; say("nodes %p %d\n", g, nodes != 0); return 0; }
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { *e = (void *)0x91; say("instantiate %p %llu\n", g, f); return 0; }
int cuGraphLaunch(void *e, void *s) { say("graphlaunch %p %p\n", e, s); return 0; }
int cuGraphExecDestroy(void *e) { say("execfree %p\n", e); return 0; }
int cuGraphDestroy(void *g) { say("graphfree %p\n", g); return 0; }

int cublasLtCreate(void **h) { *h = (void *)0xb0; return 0; }
int cublasLtDestroy(void *h) { say("ltdestroy %p\n", h); return 0; }
size_t cublasLtGetVersion(void) { return 120405; }
int cublasLtMatmulDescCreate(void **d, int c, int s) { *d = (void *)0xd5; say("desc %d %d\n", c, s); return 0; }
int cublasLtMatmulDescDestroy(void *d) { say("descfree %p\n", d); return 0; }
static int attr(const char *what, int a, const void *b, size_t n) {
	long long v = 0;
	memcpy(&v, b, n);
	say("%s %d size %zu = %llx\n", what, a, n, v);
	return 0;
}
int cublasLtMatmulDescSetAttribute(void *d, int a, const void *b, size_t n) { return attr("descattr", a, b, n); }
static uintptr_t next = 0xa0;
int cublasLtMatrixLayoutCreate(void **l, int t, uint64_t r, uint64_t c, int64_t ld) { *l = (void *)++next; say("layout %d %llu %llu %lld\n", t, (unsigned long long)r, (unsigned long long)c, (long long)ld); return 0; }
int cublasLtMatrixLayoutDestroy(void *l) { say("layoutfree %p\n", l); return 0; }
int cublasLtMatrixLayoutSetAttribute(void *l, int a, const void *b, size_t n) { return attr("layoutattr", a, b, n); }
int cublasLtMatmulPreferenceCreate(void **p) { *p = (void *)0x9e; return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { say("preffree %p\n", p); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *b, size_t n) { return attr("prefattr", a, b, n); }
struct result { uint64_t algo[8]; size_t ws; int state; float waves; int reserved[4]; };
int cublasLtMatmulAlgoGetHeuristic(void *h, void *d, void *a, void *b, void *c, void *o, void *p, int want, struct result *r, int *got) {
	say("heuristic %p %p %p %p %p %p %p %d size %zu\n", h, d, a, b, c, o, p, want, sizeof *r);
	for (int i = 0; i < 2; i++) { r[i].algo[0] = 11 + i; r[i].ws = 64; r[i].state = i ? 15 : 0; r[i].waves = 0.5f; }
	*got = 2;
	return 0;
}
int cublasLtMatmul(void *h, void *d, float *alpha, void *a, void *al, void *b, void *bl, float *beta, void *c, void *cl, void *o, void *ol, uint64_t *algo, void *ws, size_t n, void *s) {
	say("matmul %p %p %g %p %p %p %p %g %p %p %p %p algo %llu ws %p %zu %p\n", h, d, *alpha, a, al, b, bl, *beta, c, cl, o, ol, (unsigned long long)algo[0], ws, n, s);
	return 0;
}

int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 4; return 0; }

size_t cudnnGetVersion(void) { return 91501; }
size_t cudnnGetCudartVersion(void) { return 12090; }
const char *cudnnGetErrorString(int s) { return s == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS"; }
int cudnnCreate(void **h) { *h = (void *)0xdd; return 0; }
int cudnnDestroy(void *h) { say("dnndestroy %p\n", h); return 0; }
int cudnnSetStream(void *h, void *s) { say("setstream %p %p\n", h, s); return 0; }
static uintptr_t descriptors;
static int kinds[1000];
int cudnnBackendCreateDescriptor(int type, void **d) { *d = (void *)++descriptors; kinds[descriptors] = type; return 0; }
int cudnnBackendDestroyDescriptor(void *d) { say("destroy %d\n", kinds[(uintptr_t)d]); return 0; }
int cudnnBackendSetAttribute(void *d, int name, int type, int64_t n, const void *v) {
	say("%d.%d", kinds[(uintptr_t)d], name);
	for (int64_t i = 0; i < n; i++) switch (type) {
	case 0: say(" handle %p", ((void **)v)[i]); break;
	case 2: say(" %s", ((char *)v)[i] ? "true" : "false"); break;
	case 3: say(" %lld", (long long)((int64_t *)v)[i]); break;
	case 4: say(" %g", ((float *)v)[i]); break;
	case 6: /* device addresses of the tests are small; the rest are scalars in host memory */
		if (((uintptr_t *)v)[i] > 0xffff) say(" =%g", *((float **)v)[i]);
		else say(" %p", ((void **)v)[i]);
		break;
	case 15: say(" #%d", kinds[((uintptr_t *)v)[i]]); break;
	default: say(" e%d:%d", type, ((int *)v)[i]);
	}
	say("\n");
	return 0;
}
int cudnnBackendGetAttribute(void *d, int name, int type, int64_t want, int64_t *got, void *v) {
	*got = 1;
	if (name == 202) *got = 2;
	if (name == 402) *(int64_t *)v = kinds[999]++ ? 100 : 1 << 20; /* the second plan fits */
	if (name == 1303) *(int *)v = 0;
	return 0;
}
int cudnnBackendFinalize(void *d) { return 0; }
int cudnnBackendExecute(void *h, void *plan, void *pack) { say("execute %p %d %d\n", h, kinds[(uintptr_t)plan], kinds[(uintptr_t)pack]); return 0; }
