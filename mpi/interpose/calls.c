// The calls: what a program asks for in any form, whether it can be served, and how it is handed to scaffe, whose engine takes what lies side
// by side. What does not is packed.
#include "calls.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- jobs ----

// room returns memory of a job's, NULL where there is none: then the job fails when it is made.
static void *room(job *j, int64_t bytes) {
  void **at = j->rooms;
  while (*at) at++;
  if (!(*at = malloc((size_t)bytes + 1))) j->lacks = bytes;
  return *at;
}

// takes gives a job room for so many pieces that are copied after it, and reports whether there is any.
static int takes(job *j, int n) {
  if (!(j->take = room(j, n * (int64_t)sizeof *j->take))) return 0;
  j->takes = n;
  return 1;
}

static void take(job *j, piece p) {
  if (takes(j, 1)) *j->take = p;
}

int keep(job *j) {
  MPI_Datatype given = type_null, taken = type_null;
  int rc = MPI_SUCCESS;
  if (j->give.packed && j->give.type != type_null) rc = REAL(PMPI_Type_dup)(j->give.type, &given);
  if (rc == MPI_SUCCESS && j->takes > 0 && j->take[0].type != type_null) rc = REAL(PMPI_Type_dup)(j->take[0].type, &taken);
  if (rc != MPI_SUCCESS) {
    if (given != type_null) REAL(PMPI_Type_free)(&given);
    return rc;
  }
  j->give.type = given, j->keeps = 1;
  for (int i = 0; i < j->takes; i++) j->take[i].type = taken;
  return rc;
}

int bring(const job *j, state *st, MPI_Comm comm) {
  const piece *p = &j->give;
  int rc = MPI_SUCCESS;
  if (p->packed && p->type != type_null) {
    if ((rc = pack(p->buf, p->count, p->type, p->packed, p->bytes, comm)) != MPI_SUCCESS) return rc; // the library has told the error handler
  } else if (p->packed) rc = move(p->packed, p->buf, (size_t)p->bytes);
  if (rc == MPI_SUCCESS) rc = stage_down(&j->gpu);
  return rc == MPI_SUCCESS ? rc : failed(st, comm);
}

int deliver(const job *j, state *st, MPI_Comm comm) {
  int rc = stage_up(&j->gpu);
  for (int i = 0; i < j->takes && rc == MPI_SUCCESS; i++) {
    const piece *p = &j->take[i];
    if (p->type == type_null) rc = move(p->buf, p->packed, (size_t)p->bytes);
    else if ((rc = unpack(p->packed, p->bytes, p->buf, p->count, p->type, comm)) != MPI_SUCCESS) return rc;
  }
  return rc == MPI_SUCCESS || !st ? rc : failed(st, comm);
}

void clear(job *j) {
  unstage(&j->gpu);
  if (j->keeps && j->give.type != type_null) REAL(PMPI_Type_free)(&j->give.type);
  if (j->keeps && j->takes > 0 && j->take[0].type != type_null) REAL(PMPI_Type_free)(&j->take[0].type);
  for (size_t i = 0; i < sizeof j->rooms / sizeof *j->rooms; i++) free(j->rooms[i]);
  memset(j, 0, sizeof *j);
}

// ---- what all calls do ----

static int is_small(const form *f, int verb, int64_t bytes) { return bytes < here.set.min && !passed(f->verbs + verb, PASSED_SMALL); }

// is_few tells it of a call in which each rank has so many bytes, without asking how many ranks: calls are served on communicators that have
// no more than the program began with.
static int is_few(const form *f, int verb, int64_t each) { return each < here.few && !passed(f->verbs + verb, PASSED_SMALL); }

static state *serves(const form *f, int verb, int type, int64_t bytes, enum exact exact, int root, MPI_Comm comm) {
  return f->handle ? serves_started(verb, bytes, exact, root, comm) : serves_blocking(verb, type, bytes, exact, root, comm);
}

// make makes a job of a call that is served, which it ends or hands on.
static int make(const form *f, state *st, MPI_Comm comm, job *j, int *rc) {
  if (j->lacks) fprintf(stderr, "scaffe: no memory for a copy of %lld bytes that a call needs\n", (long long)j->lacks);
  if (j->lacks || stage(st, &j->call, &j->gpu) != MPI_SUCCESS) {
    clear(j);
    *rc = failed(st, comm);
  } else *rc = f->handle ? make_request(f, st, comm, j) : make_blocking(st, comm, j);
  return 1;
}

// packable reports whether what some ranks may have to pack can be: MPI before 4 counts packed bytes in an int.
static int packable(int64_t bytes) { return MPI_VERSION >= 4 || bytes <= INT_MAX; }

// ---- the calls ----

// reduction serves a Reduce or an Allreduce.
int reduction(const form *f, int verb, const void *send, void *recv, int64_t count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  if (!t) return passed(f->verbs + verb, PASSED_TYPE);
  if (is_small(f, verb, count * t->size)) return 0;
  int o = operation(t, op);
  if (o == NONE || !send || (verb == SERVE_ALLREDUCE && !recv)) return passed(f->verbs + verb, PASSED_TYPE);
  state *st = serves(f, verb, t->code, count * t->size, exactness(t->code, o), root, comm);
  if (!st || (st->rank == root && !recv)) return 0;
  job j = {.call = {verb, t->code, o, root, send == MPI_IN_PLACE ? recv : (void *)send, recv, count, NULL}};
  return make(f, st, comm, &j, rc);
}

// broadcast serves a Bcast. Ranks may use different types of one signature: whose elements do not lie
// side by side packs them.
int broadcast(const form *f, void *buf, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  int side_by_side;
  int64_t bytes = count * signature(type, &side_by_side);
  if (is_small(f, SERVE_BCAST, bytes)) return 0;
  if ((side_by_side && !buf) || !packable(bytes)) return passed(f->verbs + SERVE_BCAST, PASSED_TYPE);
  state *st = serves(f, SERVE_BCAST, SERVE_U8, bytes, ALWAYS, root, comm);
  if (!st) return 0;
  job j = {.call = {SERVE_BCAST, SERVE_U8, SERVE_SUM, root, buf, buf, bytes, NULL}};
  if (!side_by_side) {
    piece all = {buf, count, type, j.call.send = j.call.recv = room(&j, bytes), bytes};
    if (st->rank == root) j.give = all;
    else take(&j, all);
  }
  return make(f, st, comm, &j, rc);
}

static int64_t of(const list *l, int rank) {
  return l->ints ? l->ints[rank] : l->counts ? (int64_t)l->counts[rank] : l->places ? (int64_t)l->places[rank] : l->each;
}

static int equal(const list *l) { return !l->ints && !l->counts && !l->places; }

// total adds the counts of a communicator's ranks, -1 where the library is to say what is wrong with it or them.
static int64_t total(const list *counts, MPI_Comm comm) {
  int size = 0;
  if (equal(counts)) return comm != comm_null && REAL(PMPI_Comm_size)(comm, &size) == MPI_SUCCESS ? counts->each * size : -1;
  state *st = comm == comm_null ? NULL : state_of(comm);
  if (!st || st->none) return -1; // between two groups the counts are the other's
  int64_t sum = 0;
  for (int r = 0; r < st->size; r++) {
    if (of(counts, r) < 0) return -1;
    sum += of(counts, r);
  }
  return sum;
}

// sends reports whether a rank may send these elements: where not, the library says what is wrong. Neither having nothing to send, and
// so perhaps no buffer, nor MPI_BOTTOM and a type with addresses in it is wrong: other ranks know of neither.
static int sends(const void *buf, int64_t count, MPI_Datatype type, int *side_by_side) {
  if (count < 0 || type == type_null) return 0;
  return count * signature(type, side_by_side) == 0 || buf || !*side_by_side;
}

// allgather serves an Allgather, whose parts lie one after the other, or an Allgatherv, whose parts lie at places of their own on each
// rank. Ranks may use different types of one signature. What does not lie side by side goes through memory where it does.
int allgather(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, list counts, const list *places, MPI_Datatype type,
              MPI_Comm comm, int *rc) {
  int type_lies, sent_lies = 1, verb = f->verbs + SERVE_ALLGATHER;
  int64_t size = signature(type, &type_lies);
  if (equal(&counts) && is_few(f, SERVE_ALLGATHER, counts.each * size)) return 0;
  int64_t all = total(&counts, comm), bytes = all * size;
  if (all < 0) return passed(verb, PASSED_COMM);
  if (is_small(f, SERVE_ALLGATHER, bytes)) return 0;
  if (!packable(bytes) || (type_lies && !recv) || (send != MPI_IN_PLACE && !sends(send, count, sent, &sent_lies))) return passed(verb, PASSED_TYPE);
  state *st = serves(f, SERVE_ALLGATHER, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  MPI_Aint low, extent = size;
  if (!type_lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  job j = {.call = {SERVE_ALLGATHER, SERVE_U8, SERVE_SUM, 0, NULL, recv, bytes, NULL}};
  int64_t *parts = room(&j, st->size * (int64_t)sizeof *parts), begin = 0, sum = 0;
  int lies = type_lies; // the whole, one part after the other
  for (int r = 0; parts && r < st->size; r++) {
    parts[r] = of(&counts, r) * size;
    if (places && of(places, r) * size != sum) lies = 0;
    if (r == st->rank) begin = sum;
    sum += parts[r];
  }
  if (!lies) j.call.recv = room(&j, bytes);
  if (j.lacks || (!lies && !takes(&j, st->size))) return make(f, st, comm, &j, rc);
  if (!equal(&counts)) j.call.counts = parts;
  char *whole = j.call.recv;
#define PLACE(r) ((char *)recv + (places ? of(places, r) : (r) * counts.each) * extent)
  int64_t at = 0;
  for (int r = 0; !lies && r < st->size; at += parts[r++]) j.take[r] = (piece){PLACE(r), of(&counts, r), type, whole + at, parts[r]};
  j.call.send = whole + begin;
  if (parts[st->rank] > 0) {
    if (send != MPI_IN_PLACE && sent_lies) j.call.send = (void *)send;
    else if (send != MPI_IN_PLACE) j.give = (piece){(void *)send, count, sent, j.call.send, parts[st->rank]};
    else if (!lies) j.give = j.take[st->rank];
  }
#undef PLACE
  return make(f, st, comm, &j, rc);
}

// reduce_scatter serves a Reduce_scatter or a Reduce_scatter_block. In place the whole buffer is read, and the result goes to its front.
int reduce_scatter(const form *f, const void *send, void *recv, list counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm, int *rc) {
  const struct named *t = named(type);
  int in_place = send == MPI_IN_PLACE, verb = f->verbs + SERVE_REDUCE_SCATTER;
  if (!t) return passed(verb, PASSED_TYPE);
  if (equal(&counts) && is_few(f, SERVE_REDUCE_SCATTER, counts.each * t->size)) return 0;
  int64_t all = total(&counts, comm);
  if (all < 0) return passed(verb, PASSED_COMM);
  if (is_small(f, SERVE_REDUCE_SCATTER, all * t->size)) return 0;
  int o = operation(t, op);
  if (o == NONE || !send || (!recv && in_place)) return passed(verb, PASSED_TYPE);
  state *st = serves(f, SERVE_REDUCE_SCATTER, t->code, all * t->size, exactness(t->code, o), 0, comm);
  if (!st) return 0;
  job j = {.call = {SERVE_REDUCE_SCATTER, t->code, o, 0, in_place ? recv : (void *)send, recv, all, NULL}};
  if (!equal(&counts)) {
    int64_t *parts = room(&j, st->size * (int64_t)sizeof *parts);
    for (int r = 0; parts && r < st->size; r++) parts[r] = of(&counts, r);
    j.call.counts = parts;
  }
  if (in_place) {
    int64_t own = of(&counts, st->rank) * t->size;
    take(&j, (piece){recv, own, type_null, j.call.recv = room(&j, own), own});
  }
  return make(f, st, comm, &j, rc);
}

// alltoall serves an Alltoall. Ranks may use different types of one signature: what does not lie side by side goes through memory where
// it does, and so does what is sent in place.
int alltoall(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, MPI_Comm comm, int *rc) {
  int lies, sent_lies = 1, in_place = send == MPI_IN_PLACE, verb = f->verbs + SERVE_ALLTOALL;
  int64_t size = signature(type, &lies);
  if (is_few(f, SERVE_ALLTOALL, each * size)) return 0;
  int64_t all = total(&(list){.each = each}, comm), bytes = all * size;
  if (all < 0) return passed(verb, PASSED_COMM);
  if (is_small(f, SERVE_ALLTOALL, bytes)) return 0;
  if (!packable(bytes) || (lies && !recv) || (!in_place && !sends(send, count, sent, &sent_lies))) return passed(verb, PASSED_TYPE);
  state *st = serves(f, SERVE_ALLTOALL, SERVE_U8, bytes, ALWAYS, 0, comm);
  if (!st) return 0;
  job j = {.call = {SERVE_ALLTOALL, SERVE_U8, SERVE_SUM, 0, (void *)send, recv, bytes, NULL}};
  if (in_place || !sent_lies) j.call.send = room(&j, bytes);
  if (in_place) j.give = (piece){recv, lies ? bytes : all, lies ? type_null : type, j.call.send, bytes};
  else if (!sent_lies) j.give = (piece){(void *)send, count * st->size, sent, j.call.send, bytes};
  if (!lies) take(&j, (piece){recv, all, type, j.call.recv = room(&j, bytes), bytes});
  return make(f, st, comm, &j, rc);
}

// gather serves a Gather. Ranks may use different types of one signature: what does not lie side by side goes through memory where it does.
// (Of a Gatherv or a Scatterv the root alone knows how much it is; those are passed on.)
int gather(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  int verb = f->verbs + SERVE_GATHER, in_place = send == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  if (root < 0) return passed(verb, PASSED_COMM); // between two groups what the root gives is not a type
  int64_t own = in_place ? each * signature(type, &lies) : count * signature(sent, &sent_lies);
  if (is_few(f, SERVE_GATHER, own)) return 0;
  int64_t bytes = total(&(list){.each = own}, comm);
  if (bytes < 0) return passed(verb, PASSED_COMM);
  if (is_small(f, SERVE_GATHER, bytes)) return 0;
  state *st = state_of(comm);
  if (!st || st->none) return passed(verb, PASSED_COMM);
  int gets = st->rank == root;
  if (gets ? !in_place && each * signature(type, &lies) != own : in_place) return 0; // the library says what is wrong
  if (!packable(bytes) || (gets && lies && !recv) || (!in_place && !sends(send, count, sent, &sent_lies))) return passed(verb, PASSED_TYPE);
  if (!serves(f, SERVE_GATHER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  MPI_Aint low, extent = 0;
  if (!lies && (*rc = REAL(PMPI_Type_get_extent)(type, &low, &extent)) != MPI_SUCCESS) return 1;
  job j = {.call = {SERVE_GATHER, SERVE_U8, SERVE_SUM, root, (void *)send, gets ? recv : NULL, bytes, NULL}};
  if (!lies) take(&j, (piece){recv, each * st->size, type, j.call.recv = room(&j, bytes), bytes});
  if (in_place) j.call.send = (char *)j.call.recv + own * root;
  else if (!sent_lies) j.give = (piece){(void *)send, count, sent, j.call.send = room(&j, own), own};
  if (in_place && !lies) j.give = (piece){(char *)recv + each * extent * root, each, type, j.call.send, own};
  return make(f, st, comm, &j, rc);
}

// scatter serves a Scatter, likewise.
int scatter(const form *f, const void *send, int64_t count, MPI_Datatype sent, void *recv, int64_t each, MPI_Datatype type, int root, MPI_Comm comm, int *rc) {
  int verb = f->verbs + SERVE_SCATTER, in_place = recv == MPI_IN_PLACE, lies = 1, sent_lies = 1;
  if (root < 0) return passed(verb, PASSED_COMM);
  int64_t own = in_place ? count * signature(sent, &sent_lies) : each * signature(type, &lies);
  if (is_few(f, SERVE_SCATTER, own)) return 0;
  int64_t bytes = total(&(list){.each = own}, comm);
  if (bytes < 0) return passed(verb, PASSED_COMM);
  if (is_small(f, SERVE_SCATTER, bytes)) return 0;
  state *st = state_of(comm);
  if (!st || st->none) return passed(verb, PASSED_COMM);
  int gives = st->rank == root;
  if (gives ? !in_place && count * signature(sent, &sent_lies) != own : in_place) return 0;
  if (!packable(bytes) || (gives && sent_lies && !send) || (!in_place && !sends(recv, each, type, &lies))) return passed(verb, PASSED_TYPE);
  if (!serves(f, SERVE_SCATTER, SERVE_U8, bytes, ALWAYS, root, comm)) return 0;
  job j = {.call = {SERVE_SCATTER, SERVE_U8, SERVE_SUM, root, gives ? (void *)send : NULL, recv, bytes, NULL}};
  if (!sent_lies) j.give = (piece){(void *)send, count * st->size, sent, j.call.send = room(&j, bytes), bytes};
  if (in_place) j.call.recv = (char *)j.call.send + own * root;
  else if (!lies) take(&j, (piece){recv, each, type, j.call.recv = room(&j, own), own});
  return make(f, st, comm, &j, rc);
}
