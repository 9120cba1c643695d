// What only the C files of this package see.
#ifndef SCAFFE_MPI_HANDLES_H
#define SCAFFE_MPI_HANDLES_H

#include "shim.h"
#include <mpi.h>

struct scaffe_comm {
  MPI_Comm comm;
};

#define ON_THREAD                                                                                  \
  if (!scaffe_on_thread()) return SCAFFE_WRONG_THREAD

#define TRY(call)                                                                                  \
  do {                                                                                             \
    int rc_ = (call);                                                                              \
    if (rc_ != MPI_SUCCESS) return rc_;                                                            \
  } while (0)

#endif
