// What is known of requests that are served.
#ifndef SCAFFE_REQUESTS_H
#define SCAFFE_REQUESTS_H

#include "calls.h"
#include <pthread.h>

// request is a served one.
typedef struct request {
  MPI_Request handle; // its placeholder
  MPI_Comm comm;
  state *st; // NULL once its communicator is gone
  uintptr_t prepared;
  int persistent;
  int active;    // between its start and its completion in a call of the program's
  int32_t ended; // set by scaffe's thread: 1, or -1
  job job;
  struct request *next; // in its bucket
} request;

extern struct requests {
  pthread_mutex_t lock; // of the table of requests, and what is counted
  int served;           // requests in the table
  int active;           // of them, those that were started and not completed
  MPI_Request null;
} requests;

static inline int any(const int *counter) { return __atomic_load_n(counter, __ATOMIC_RELAXED) != 0; }
static inline int over(const request *q) { return __atomic_load_n(&q->ended, __ATOMIC_ACQUIRE) != 0; }

request *find(MPI_Request handle);        // the served one with a handle, NULL where there is none
request *find_locked(MPI_Request handle); // likewise, for who has the lock
int start(request *q);
int retire(request *q, MPI_Request *handle); // completes one that has ended, and returns what the program's call is to say of it
void drop(request *q);
int refuse(request *q, int class); // tells an error handler that a call on a request is wrong, or has failed

// Waiting.
uint32_t look_at_bell(void);
void rest(uint32_t seen); // turns the program's MPI, and sleeps until a request ends that had not when the bell was looked at, or for a moment
void look_again(void);    // turns it after a test in vain
void await(const request *q);

#endif
