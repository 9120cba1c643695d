//go:build onednn && cgo

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// OpenMP keeps the number of threads for each thread that starts a parallel
// region, and a goroutine may be on any: every entry sets it. dlsym finds the
// OpenMP that the library itself is linked with, if any.
static int threads = 1;
static void (*set_num_threads)(int);

static void enter(void) {
	if (set_num_threads) set_num_threads(__atomic_load_n(&threads, __ATOMIC_RELAXED));
}

void dnn_set_threads(int n) { __atomic_store_n(&threads, n, __ATOMIC_RELAXED); }
int dnn_threads(void) { return __atomic_load_n(&threads, __ATOMIC_RELAXED); }

dnnl_status_t dnn_open(dnnl_engine_t *engine) {
	set_num_threads = (void (*)(int))dlsym(RTLD_DEFAULT, "omp_set_num_threads");
	enter();
	return dnnl_engine_create(engine, dnnl_cpu, 0);
}

#define TRY(call) do { dnnl_status_t status_ = (call); if (status_ != dnnl_success) return status_; } while (0)

// take reserves bytes of workspace, aligned to a cache line.
static size_t take(pass *p, size_t bytes) {
	size_t at = p->bytes;
	p->bytes += (bytes + 63) / 64 * 64;
	return at;
}

// Scratch memory is the caller's: the library's own would belong to the thread
// that made the primitive. Reorders run before and after the primitive, so
// all share one range.
static dnnl_status_t attributes(dnnl_primitive_attr_t *attr, int add) {
	TRY(dnnl_primitive_attr_create(attr));
	TRY(dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user));
	if (!add) return dnnl_success;
	dnnl_post_ops_t ops;
	TRY(dnnl_post_ops_create(&ops));
	dnnl_status_t s = dnnl_post_ops_append_sum(ops, 1);
	if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(*attr, ops);
	dnnl_post_ops_destroy(ops);
	return s;
}

// reorder makes the primitive that copies from one layout to the other,
// adding to what is there for gradients of parameters.
static dnnl_status_t reorder(dnnl_primitive_t *prim, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to, dnnl_engine_t engine, int add) {
	dnnl_primitive_attr_t attr = NULL;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t s = attributes(&attr, add);
	if (s == dnnl_success) s = dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, attr);
	if (s == dnnl_success && dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0)) > 0)
		s = dnnl_unimplemented;
	if (s == dnnl_success) s = dnnl_primitive_create(prim, pd);
	if (pd) dnnl_primitive_desc_destroy(pd);
	if (attr) dnnl_primitive_attr_destroy(attr);
	return s;
}

// join finds the layout that the primitive wants for tensor t. Gradients of
// parameters are added to the caller's, so they always pass through the
// workspace.
static dnnl_status_t join(pass *p, tensor *t, const dnnl_memory_desc_t *own, dnnl_engine_t engine) {
	int add = t->arg == DNNL_ARG_DIFF_WEIGHTS || t->arg == DNNL_ARG_DIFF_BIAS;
	TRY(dnnl_memory_create(&t->user, &t->md, engine, DNNL_MEMORY_NONE));
	if (!add && dnnl_memory_desc_equal(own, &t->md)) {
		t->own = t->user;
		return dnnl_success;
	}
	t->offset = take(p, dnnl_memory_desc_get_size(own));
	TRY(dnnl_memory_create(&t->own, own, engine, DNNL_MEMORY_NONE));
	return t->output ? reorder(&t->reorder, own, &t->md, engine, add) : reorder(&t->reorder, &t->md, own, engine, 0);
}

static dnnl_query_t query_of(int arg) {
	switch (arg) {
	case DNNL_ARG_SRC: return dnnl_query_src_md;
	case DNNL_ARG_DST: return dnnl_query_dst_md;
	case DNNL_ARG_DIFF_SRC: return dnnl_query_diff_src_md;
	case DNNL_ARG_DIFF_DST: return dnnl_query_diff_dst_md;
	case DNNL_ARG_DIFF_WEIGHTS:
	case DNNL_ARG_DIFF_BIAS: return dnnl_query_diff_weights_md;
	default: return dnnl_query_weights_md; // weights and bias
	}
}

// finish makes the primitive of pd and all around it.
static dnnl_status_t finish(pass *p, const_dnnl_primitive_desc_t pd, dnnl_engine_t engine) {
	const char *impl = NULL;
	TRY(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&impl));
	strncpy(p->impl, impl, sizeof p->impl - 1);
	for (int i = 0; i < p->count; i++) {
		tensor *t = &p->tensors[i];
		int bias = t->arg == DNNL_ARG_BIAS || t->arg == DNNL_ARG_DIFF_BIAS;
		TRY(join(p, t, dnnl_primitive_desc_query_md(pd, query_of(t->arg), bias), engine));
	}
	const dnnl_memory_desc_t *scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	p->scratch_offset = take(p, dnnl_memory_desc_get_size(scratch));
	TRY(dnnl_memory_create(&p->scratch, scratch, engine, DNNL_MEMORY_NONE));
	return dnnl_primitive_create(&p->primitive, pd);
}

static void add_tensor(pass *p, int arg, int output, int ndims, const dnnl_dims_t dims) {
	static const dnnl_format_tag_t plain[] = {0, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};
	tensor *t = &p->tensors[p->count++];
	t->arg = arg;
	t->output = output;
	dnnl_memory_desc_init_by_tag(&t->md, ndims, dims, dnnl_f32, plain[ndims]);
}

// any is t's shape in whatever layout the primitive likes best.
static dnnl_memory_desc_t any(const tensor *t) {
	dnnl_memory_desc_t md;
	dnnl_memory_desc_init_by_tag(&md, t->md.ndims, t->md.dims, dnnl_f32, t->md.ndims == 1 ? dnnl_a : dnnl_format_tag_any);
	return md;
}

// forward_desc describes the forward pass, which a backward pass takes as a
// hint too.
static dnnl_status_t forward_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const dnnl_primitive_attr_t attr,
	const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w, const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *y,
	const dnnl_dims_t stride, const dnnl_dims_t dil, const dnnl_dims_t pad) {
	dnnl_convolution_desc_t d;
	TRY(dnnl_dilated_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, x, w, b, y, stride, dil, pad, pad));
	return dnnl_primitive_desc_create(pd, &d, attr, engine, NULL);
}

static dnnl_status_t build(pass *p, dnnl_engine_t engine, const convolution *c, int kind) {
	dnnl_dims_t xd = {c->n, c->in, c->h, c->w}, yd = {c->n, c->out, c->oh, c->ow}, bd = {c->out};
	dnnl_dims_t wd = {c->groups, c->out / c->groups, c->in / c->groups, c->kh, c->kw};
	dnnl_dims_t stride = {c->stride_h, c->stride_w}, dil = {c->dil_h - 1, c->dil_w - 1}, pad = {c->pad_h, c->pad_w};
	int one = c->groups == 1; // then the weights have no axis of groups
	int bias = c->bias && kind != conv_backward_data;
	switch (kind) {
	case conv_forward:
		add_tensor(p, DNNL_ARG_SRC, 0, 4, xd);
		add_tensor(p, DNNL_ARG_WEIGHTS, 0, 5 - one, wd + one);
		add_tensor(p, DNNL_ARG_DST, 1, 4, yd);
		if (bias) add_tensor(p, DNNL_ARG_BIAS, 0, 1, bd);
		break;
	case conv_backward_data:
		add_tensor(p, DNNL_ARG_DIFF_SRC, 1, 4, xd);
		add_tensor(p, DNNL_ARG_WEIGHTS, 0, 5 - one, wd + one);
		add_tensor(p, DNNL_ARG_DIFF_DST, 0, 4, yd);
		break;
	default:
		add_tensor(p, DNNL_ARG_SRC, 0, 4, xd);
		add_tensor(p, DNNL_ARG_DIFF_WEIGHTS, 1, 5 - one, wd + one);
		add_tensor(p, DNNL_ARG_DIFF_DST, 0, 4, yd);
		if (bias) add_tensor(p, DNNL_ARG_DIFF_BIAS, 1, 1, bd);
	}
	dnnl_memory_desc_t x = any(&p->tensors[0]), w = any(&p->tensors[1]), y = any(&p->tensors[2]), b;
	if (bias) b = any(&p->tensors[3]);
	dnnl_primitive_attr_t attr;
	TRY(attributes(&attr, 0));
	dnnl_primitive_desc_t hint = NULL, pd = NULL;
	dnnl_status_t s = forward_desc(&hint, engine, attr, &x, &w, bias ? &b : NULL, &y, stride, dil, pad);
	dnnl_convolution_desc_t d;
	if (s == dnnl_success && kind == conv_backward_data) {
		s = dnnl_dilated_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &x, &w, &y, stride, dil, pad, pad);
		if (s == dnnl_success) s = dnnl_primitive_desc_create(&pd, &d, attr, engine, hint);
	} else if (s == dnnl_success && kind == conv_backward_weights) {
		s = dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &x, &w, bias ? &b : NULL, &y, stride, dil, pad, pad);
		if (s == dnnl_success) s = dnnl_primitive_desc_create(&pd, &d, attr, engine, hint);
	}
	if (s == dnnl_success) s = finish(p, pd ? pd : hint, engine);
	if (pd) dnnl_primitive_desc_destroy(pd);
	if (hint) dnnl_primitive_desc_destroy(hint);
	dnnl_primitive_attr_destroy(attr);
	return s;
}

dnnl_status_t dnn_conv(pass **out, dnnl_engine_t engine, const convolution *c, int kind) {
	enter();
	pass *p = calloc(1, sizeof *p);
	if (!p) return dnnl_out_of_memory;
	dnnl_status_t s = build(p, engine, c, kind);
	if (s == dnnl_success)
		*out = p;
	else
		dnn_free(p);
	return s;
}

void dnn_free(pass *p) {
	for (int i = 0; i < p->count; i++) {
		tensor *t = &p->tensors[i];
		if (t->reorder) dnnl_primitive_destroy(t->reorder);
		if (t->own && t->own != t->user) dnnl_memory_destroy(t->own);
		if (t->user) dnnl_memory_destroy(t->user);
	}
	if (p->scratch) dnnl_memory_destroy(p->scratch);
	if (p->primitive) dnnl_primitive_destroy(p->primitive);
	free(p);
}

// point lets m lie at h. Setting a handle writes the padding of a blocked
// layout, so it is left alone where it does not change.
static dnnl_status_t point(dnnl_memory_t m, void *h) {
	void *old = NULL;
	TRY(dnnl_memory_get_data_handle(m, &old));
	return old == h ? dnnl_success : dnnl_memory_set_data_handle(m, h);
}

static dnnl_status_t copy(dnnl_primitive_t reorder, dnnl_stream_t stream, dnnl_memory_t from, dnnl_memory_t to) {
	dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
	return dnnl_primitive_execute(reorder, stream, 2, args);
}

static dnnl_status_t run(pass *p, dnnl_stream_t stream, char *workspace, void **data) {
	dnnl_exec_arg_t args[max_tensors + 1];
	for (int i = 0; i < p->count; i++) {
		tensor *t = &p->tensors[i];
		TRY(point(t->user, data[i]));
		if (t->reorder) TRY(point(t->own, workspace + t->offset));
		if (t->reorder && !t->output) TRY(copy(t->reorder, stream, t->user, t->own));
		args[i] = (dnnl_exec_arg_t){t->arg, t->own};
	}
	TRY(point(p->scratch, workspace + p->scratch_offset));
	args[p->count] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, p->scratch};
	TRY(dnnl_primitive_execute(p->primitive, stream, p->count + 1, args));
	for (int i = 0; i < p->count; i++) {
		tensor *t = &p->tensors[i];
		if (t->reorder && t->output) TRY(copy(t->reorder, stream, t->own, t->user));
	}
	return dnnl_stream_wait(stream);
}

// dnn_run runs p on the caller's tensors, in the order of p->tensors. No
// pointer to them is kept.
dnnl_status_t dnn_run(pass *p, dnnl_stream_t stream, char *workspace, void *a, void *b, void *c, void *d) {
	void *data[max_tensors] = {a, b, c, d};
	enter();
	dnnl_status_t s = run(p, stream, workspace, data);
	for (int i = 0; i < p->count; i++) dnnl_memory_set_data_handle(p->tensors[i].user, NULL);
	return s;
}

// dnn_gemm is the library's matrix product, row-major like everything here.
dnnl_status_t dnn_gemm(char ta, char tb, long m, long n, long k, float alpha, const float *a, long lda, const float *b, long ldb, float beta, float *c, long ldc) {
	enter();
	return dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
