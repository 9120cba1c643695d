// threads makes collectives on two communicators from two threads at once, whose ranks come to them in
// different orders, under the level of threads that it is told: with "single" one thread makes all. With "late" the
// last rank then lets the others wait for some seconds.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank, size, errors, late;
static MPI_Comm comms[2];

static void *rounds(void *which) {
  MPI_Comm comm = *(MPI_Comm *)which;
  int n = 40000;
  double *v = malloc(n * sizeof *v), *w = malloc(n * sizeof *w);
  for (int k = 0; k < 30; k++) {
    for (int i = 0; i < n; i++) v[i] = rank + k;
    usleep((unsigned)(rank * 137 + k * 71) % 500);
    if (late && rank == size - 1 && k == 20) sleep(4), late = 0;
    MPI_Allreduce(v, w, n, MPI_DOUBLE, MPI_SUM, comm);
    double want = size * k + size * (size - 1) / 2.0;
    if (w[0] != want || w[n - 1] != want) {
      __atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
      printf("rank %d, round %d: %g, not %g\n", rank, k, w[n - 1], want);
      break;
    }
  }
  free(v), free(w);
  return NULL;
}

int main(int argc, char **argv) {
  int single = argc > 1 && !strcmp(argv[1], "single"), provided, total = 0;
  late = argc > 2 && !strcmp(argv[2], "late");
  MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 2; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  if (single || provided < MPI_THREAD_MULTIPLE) {
    rounds(&comms[0]), rounds(&comms[1]);
  } else {
    pthread_t t;
    pthread_create(&t, NULL, rounds, &comms[rank % 2]);
    rounds(&comms[1 - rank % 2]);
    pthread_join(t, NULL);
  }
  pid_t child = fork(); // as system() does
  if (child == 0) _exit(0);
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) errors++;
  rounds(&comms[0]);
  for (int i = 0; i < 2; i++) MPI_Comm_free(&comms[i]);
  MPI_Allreduce(&errors, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d errors\n", total);
  MPI_Finalize();
  return total != 0;
}
