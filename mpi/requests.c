//go:build mpi

#include "handles.h"
#include <stdlib.h>
#include <string.h>

// What must be known of a live request besides its handle.
struct scaffe_slot {
  uint64_t id;
  int receives;
};

int64_t scaffe_large = 1 << 30;

scaffe_reqs *scaffe_reqs_new(void) { return calloc(1, sizeof(scaffe_reqs)); }

static int grow(void **p, size_t n) {
  void *q = realloc(*p, n);
  if (q) *p = q;
  return q != NULL;
}

// reserve makes room for one more request.
static int reserve(scaffe_reqs *r) {
  if (r->live < r->cap) return MPI_SUCCESS;
  int cap = r->cap ? 2 * r->cap : 64;
  if (!grow((void **)&r->done, cap * sizeof *r->done) ||
      !grow((void **)&r->slot, cap * sizeof *r->slot) ||
      !grow(&r->req, cap * sizeof(MPI_Request)) || !grow(&r->status, cap * sizeof(MPI_Status)) ||
      !grow((void **)&r->index, cap * sizeof *r->index))
    return SCAFFE_NO_MEMORY;
  for (int i = r->cap; i < cap; i++) ((MPI_Status *)r->status)[i].MPI_ERROR = MPI_SUCCESS;
  r->cap = cap;
  return MPI_SUCCESS;
}

static int added(scaffe_reqs *r, int rc, uint64_t id, int receives) {
  if (rc != MPI_SUCCESS) return rc;
  r->slot[r->live].id = id;
  r->slot[r->live].receives = receives;
  r->live++;
  return MPI_SUCCESS;
}

int scaffe_room(scaffe_reqs *r, MPI_Request **q) {
  int rc = reserve(r);
  if (rc == MPI_SUCCESS) *q = (MPI_Request *)r->req + r->live;
  return rc;
}

int scaffe_added(scaffe_reqs *r, uint64_t id) { return added(r, MPI_SUCCESS, id, 0); }

// bytes_type describes n bytes as one element: as many blocks of scaffe_large
// as fit, and the rest.
static int bytes_type(int64_t n, MPI_Datatype *out) {
  MPI_Datatype block, parts[2];
  int rc = PMPI_Type_contiguous((int)scaffe_large, MPI_BYTE, &block);
  if (rc != MPI_SUCCESS) return rc;
  int lengths[2] = {(int)(n / scaffe_large), (int)(n % scaffe_large)};
  MPI_Aint at[2] = {0, (MPI_Aint)(n - n % scaffe_large)};
  parts[0] = block;
  parts[1] = MPI_BYTE;
  rc = PMPI_Type_create_struct(2, lengths, at, parts, out);
  PMPI_Type_free(&block);
  return rc != MPI_SUCCESS ? rc : PMPI_Type_commit(out);
}

int scaffe_isend(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int64_t n, int to, int tag) {
  ON_THREAD;
  int rc = reserve(r);
  if (rc != MPI_SUCCESS) return rc;
  MPI_Request *q = (MPI_Request *)r->req + r->live;
  if (n <= scaffe_large)
    return added(r, PMPI_Isend(p, (int)n, MPI_BYTE, to, tag, c->comm, q), id, 0);
  MPI_Datatype type;
  rc = bytes_type(n, &type);
  if (rc != MPI_SUCCESS) return rc;
  rc = PMPI_Isend(p, 1, type, to, tag, c->comm, q);
  PMPI_Type_free(&type); // the library keeps it until the request ends
  return added(r, rc, id, 0);
}

// scaffe_isend_test is scaffe_isend of at most scaffe_large bytes, and looks whether the
// request has ended: then it is forgotten.
int scaffe_isend_test(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int n, int to, int tag, int *ended) {
  ON_THREAD;
  TRY(reserve(r));
  MPI_Request *q = (MPI_Request *)r->req + r->live;
  TRY(PMPI_Isend(p, n, MPI_BYTE, to, tag, c->comm, q));
  scaffe_keep_core(r->keeps);
  int rc = PMPI_Test(q, ended, MPI_STATUS_IGNORE);
  scaffe_keep_core(0);
  TRY(rc);
  return *ended ? MPI_SUCCESS : added(r, MPI_SUCCESS, id, 0);
}

int scaffe_issend(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int n, int to, int tag) {
  ON_THREAD;
  TRY(reserve(r));
  MPI_Request *q = (MPI_Request *)r->req + r->live;
  return added(r, PMPI_Issend(p, n, MPI_BYTE, to, tag, c->comm, q), id, 0);
}

int scaffe_irecv(scaffe_comm *c, scaffe_reqs *r, uint64_t id, void *p, int64_t n, int from, int tag) {
  ON_THREAD;
  int rc = reserve(r);
  if (rc != MPI_SUCCESS) return rc;
  MPI_Request *q = (MPI_Request *)r->req + r->live;
  if (from < 0) from = MPI_ANY_SOURCE;
  if (n <= scaffe_large)
    return added(r, PMPI_Irecv(p, (int)n, MPI_BYTE, from, tag, c->comm, q), id, 1);
  MPI_Datatype type;
  rc = bytes_type(n, &type);
  if (rc != MPI_SUCCESS) return rc;
  rc = PMPI_Irecv(p, 1, type, from, tag, c->comm, q);
  PMPI_Type_free(&type);
  return added(r, rc, id, 1);
}

int scaffe_ibarrier(scaffe_comm *c, scaffe_reqs *r, uint64_t id) {
  ON_THREAD;
  int rc = reserve(r);
  if (rc != MPI_SUCCESS) return rc;
  return added(r, PMPI_Ibarrier(c->comm, (MPI_Request *)r->req + r->live), id, 0);
}

// report fills in what request i of r came to.
static void report(scaffe_reqs *r, int i, MPI_Status *st, int error, scaffe_done *d) {
  int cancelled = 0;
  MPI_Count n = 0;
  memset(d, 0, sizeof *d);
  d->id = r->slot[i].id;
  d->error = error;
  if (!r->slot[i].receives) return;
  PMPI_Test_cancelled(st, &cancelled);
  if (cancelled) {
    d->error = SCAFFE_CANCELED;
    return;
  }
  d->source = st->MPI_SOURCE;
  d->tag = st->MPI_TAG;
  if (PMPI_Get_elements_x(st, MPI_BYTE, &n) == MPI_SUCCESS && n != MPI_UNDEFINED) d->bytes = n;
}

// compact closes the gaps that finished requests left; those that remain keep
// their order.
static void compact(scaffe_reqs *r) {
  MPI_Request *q = r->req;
  int k = 0;
  for (int i = 0; i < r->live; i++) {
    if (q[i] == MPI_REQUEST_NULL) continue;
    if (k != i) {
      q[k] = q[i];
      r->slot[k] = r->slot[i];
    }
    k++;
  }
  r->live = k;
}

int scaffe_testsome(scaffe_reqs *r, int *ended) {
  ON_THREAD;
  *ended = 0;
  if (r->live == 0) return MPI_SUCCESS;
  int n = 0;
  MPI_Status *st = r->status;
  scaffe_keep_core(r->keeps);
  int rc = PMPI_Testsome(r->live, r->req, &n, r->index, st);
  scaffe_keep_core(0);
  if (rc != MPI_SUCCESS) {
    int class = MPI_SUCCESS;
    PMPI_Error_class(rc, &class);
    if (class != MPI_ERR_IN_STATUS) return rc;
  }
  if (n == MPI_UNDEFINED || n == 0) return MPI_SUCCESS;
  // Open MPI 4.1 returns success where a status holds an error; MPICH touches
  // MPI_ERROR only where one does. So it is read always, and kept clean.
  for (int k = 0; k < n; k++) {
    report(r, r->index[k], &st[k], st[k].MPI_ERROR, &r->done[k]);
    st[k].MPI_ERROR = MPI_SUCCESS;
    ((MPI_Request *)r->req)[r->index[k]] = MPI_REQUEST_NULL; // an errored one may still be named
  }
  compact(r);
  *ended = n;
  return MPI_SUCCESS;
}

int scaffe_cancel(scaffe_reqs *r, uint64_t id) {
  ON_THREAD;
  for (int i = 0; i < r->live; i++)
    if (r->slot[i].id == id && r->slot[i].receives) return PMPI_Cancel((MPI_Request *)r->req + i);
  return SCAFFE_NO_REQUEST;
}

int scaffe_reqs_free(scaffe_reqs *r) {
  if (r->live > 0 && scaffe_on_thread()) {
    MPI_Request *q = r->req;
    for (int i = 0; i < r->live; i++) {
      if (r->slot[i].receives) PMPI_Cancel(q + i);
      PMPI_Request_free(q + i);
    }
  }
  free(r->done);
  free(r->slot);
  free(r->req);
  free(r->status);
  free(r->index);
  free(r);
  return MPI_SUCCESS;
}
