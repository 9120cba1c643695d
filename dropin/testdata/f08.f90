! What scaffe serves, called by the interface of Fortran 2008.
program f
  use mpi_f08
  implicit none
  integer :: rank, n, k
  real(8), allocatable, asynchronous :: a(:), b(:)
  type(MPI_Request) :: r(2)
  type(MPI_Status) :: s(2)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  allocate(a(500000), b(500000))
  do k = 1, 4
    a = rank + 1
    call MPI_Allreduce(a, b, 500000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    if (any(b /= n*(n+1)/2)) stop 1
    call MPI_Allreduce(MPI_IN_PLACE, a, 500000, MPI_REAL8, MPI_MAX, MPI_COMM_WORLD)
    if (any(a /= n)) stop 2
    call MPI_Bcast(b, 500000, MPI_REAL8, 1, MPI_COMM_WORLD)
  end do
  a = rank + 1
  call MPI_Iallreduce(a, b, 500000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, r(1))
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  if (r(1) /= MPI_REQUEST_NULL .or. any(b /= n*(n+1)/2)) stop 3
  call MPI_Iallreduce(MPI_IN_PLACE, a, 500000, MPI_REAL8, MPI_MAX, MPI_COMM_WORLD, r(1))
  call MPI_Ibcast(b, 500000, MPI_REAL8, 1, MPI_COMM_WORLD, r(2))
  call MPI_Waitall(2, r, s)
  if (any(r /= MPI_REQUEST_NULL) .or. any(a /= n)) stop 4
  if (rank == 0) print *, "0 errors"
  call MPI_Finalize()
end program
