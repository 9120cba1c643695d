! What scaffe serves, called by the interface of Fortran 2008.
program f
  use mpi_f08
  implicit none
  integer :: rank, n, k
  real(8), allocatable, asynchronous :: a(:), b(:), c(:)
  integer, allocatable, asynchronous :: counts(:), places(:)
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
  ! Parts of 10000.
  allocate(c(10000*n), counts(n), places(n))
  counts = 10000
  places = [(10000*(n - k), k = 1, n)]
  a(:10000) = rank + 1
  call MPI_Iallgather(a, 10000, MPI_REAL8, c, 10000, MPI_REAL8, MPI_COMM_WORLD, r(1))
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  if (c(1) /= 1 .or. c(10000*n) /= n) stop 5
  call MPI_Iallgatherv(a, 10000, MPI_REAL8, c, counts, places, MPI_REAL8, MPI_COMM_WORLD, r(1))
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  if (c(1) /= n .or. c(10000*n) /= 1) stop 6
  call MPI_Ireduce_scatter(c, a, counts, MPI_REAL8, MPI_SUM, MPI_COMM_WORLD, r(1))
  call MPI_Ireduce_scatter_block(c, b, 10000, MPI_REAL8, MPI_SUM, MPI_COMM_WORLD, r(2))
  call MPI_Waitall(2, r, s)
  if (any(a(:10000) /= n*(n - rank)) .or. any(b(:10000) /= n*(n - rank))) stop 7
  c = rank
  call MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c, 10000, MPI_REAL8, MPI_COMM_WORLD, r(1))
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  if (c(1) /= 0 .or. c(10000*n) /= n - 1) stop 8
  if (rank == 0) then
    call MPI_Iscatter(c, 10000, MPI_REAL8, MPI_IN_PLACE, 10000, MPI_REAL8, 0, MPI_COMM_WORLD, r(1))
    a(:10000) = 0
  else
    call MPI_Iscatter(c, 10000, MPI_REAL8, a, 10000, MPI_REAL8, 0, MPI_COMM_WORLD, r(1))
  end if
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  c = -1
  call MPI_Igather(a, 10000, MPI_REAL8, c, 10000, MPI_REAL8, 0, MPI_COMM_WORLD, r(1))
  call MPI_Wait(r(1), MPI_STATUS_IGNORE)
  if (any(a(:10000) /= rank) .or. (rank == 0 .and. c(10000*n) /= n - 1)) stop 9
  if (rank == 0) print *, "0 errors"
  call MPI_Finalize()
end program
