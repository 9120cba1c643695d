// What only the C files of this package see.
#ifndef SCAFFE_MPI_HANDLES_H
#define SCAFFE_MPI_HANDLES_H

#include "shim.h"
#include <mpi.h>

struct scaffe_comm {
  MPI_Comm comm;
};

// scaffe_room makes room for one more request of r and says where it goes,
// scaffe_added takes note of it, once it has begun.
int scaffe_room(scaffe_reqs *r, MPI_Request **q);
int scaffe_added(scaffe_reqs *r, uint64_t id);

// scaffe_keep_core says whether MPI is to keep the core where it looks in vain: Open MPI offers that at each such look where
// ranks share cores, and a rank that computes there keeps it for milliseconds. Whoever looks again and again
// decides by itself when to offer it. Afterwards MPI does as before.
void scaffe_keep_core(int keep);

#define ON_THREAD                                                                                  \
  if (!scaffe_on_thread()) return SCAFFE_WRONG_THREAD

#define TRY(call)                                                                                  \
  do {                                                                                             \
    int rc_ = (call);                                                                              \
    if (rc_ != MPI_SUCCESS) return rc_;                                                            \
  } while (0)

#endif
