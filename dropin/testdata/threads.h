// start_mpi starts MPI, with THREADS=multiple in the environment for threads that may all call it.
#include <mpi.h>
#include <stdlib.h>

static void start_mpi(int *argc, char ***argv) {
  int provided;
  if (!getenv("THREADS")) MPI_Init(argc, argv);
  else if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS || provided != MPI_THREAD_MULTIPLE) exit(1);
}
