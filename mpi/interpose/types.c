// The MPI library's handles, its named types and operators, and copies of elements that do not lie side by side.
#include "interpose.h"
#include <limits.h>
#include <stddef.h>

MPI_Comm comm_world, comm_self, comm_null;
MPI_Datatype type_null, type_byte, type_int, type_long_long, type_double;
MPI_Op ops[SERVE_OPS];

// The named types whose elements lie side by side, and what the kernels take them for. The standard says which
// operators combine which (MPI 4.0, section 6.9.2).
#define TYPES(X)                                                                                                               \
  X(MPI_DOUBLE, "double", SERVE_F64, 8, ARITHMETIC)                                                                            \
  X(MPI_FLOAT, "float", SERVE_F32, 4, ARITHMETIC)                                                                              \
  X(MPI_INT, "int", SERVE_I32, 4, ARITHMETIC | BITS | LOGIC)                                                                   \
  X(MPI_LONG, "long", sizeof(long) == 8 ? SERVE_I64 : SERVE_I32, sizeof(long), ARITHMETIC | BITS | LOGIC)                      \
  X(MPI_LONG_LONG, "long_long_int", SERVE_I64, 8, ARITHMETIC | BITS | LOGIC)                                                   \
  X(MPI_INT32_T, "int32_t", SERVE_I32, 4, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_INT64_T, "int64_t", SERVE_I64, 8, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_UINT8_T, "uint8_t", SERVE_U8, 1, ARITHMETIC | BITS | LOGIC)                                                            \
  X(MPI_UNSIGNED_CHAR, "unsigned_char", SERVE_U8, 1, ARITHMETIC | BITS | LOGIC)                                                \
  X(MPI_REAL, "real", SERVE_F32, 4, ARITHMETIC)                                                                                \
  X(MPI_DOUBLE_PRECISION, "dblprec", SERVE_F64, 8, ARITHMETIC)                                                                 \
  X(MPI_INTEGER, "integer", SERVE_I32, 4, ARITHMETIC | BITS)                                                                   \
  X(MPI_REAL4, "real4", SERVE_F32, 4, ARITHMETIC)                                                                              \
  X(MPI_REAL8, "real8", SERVE_F64, 8, ARITHMETIC)                                                                              \
  X(MPI_INTEGER4, "integer4", SERVE_I32, 4, ARITHMETIC | BITS)                                                                 \
  X(MPI_INTEGER8, "integer8", SERVE_I64, 8, ARITHMETIC | BITS)                                                                 \
  X(MPI_BYTE, "byte", SERVE_U8, 1, BITS)                                                                                       \
  X(MPI_CHAR, "char", SERVE_U8, 1, 0)                                                                                          \
  X(MPI_PACKED, "packed", SERVE_U8, 1, 0)                                                                                      \
  X(MPI_SIGNED_CHAR, "signed_char", SERVE_I8, 1, ARITHMETIC | BITS | LOGIC)                                                    \
  X(MPI_INT8_T, "int8_t", SERVE_I8, 1, ARITHMETIC | BITS | LOGIC)                                                              \
  X(MPI_SHORT, "short", SERVE_I16, 2, ARITHMETIC | BITS | LOGIC)                                                               \
  X(MPI_UNSIGNED_SHORT, "unsigned_short", SERVE_U16, 2, ARITHMETIC | BITS | LOGIC)                                             \
  X(MPI_INT16_T, "int16_t", SERVE_I16, 2, ARITHMETIC | BITS | LOGIC)                                                           \
  X(MPI_UINT16_T, "uint16_t", SERVE_U16, 2, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UNSIGNED, "unsigned", SERVE_U32, 4, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UINT32_T, "uint32_t", SERVE_U32, 4, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UINT64_T, "uint64_t", SERVE_U64, 8, ARITHMETIC | BITS | LOGIC)                                                         \
  X(MPI_UNSIGNED_LONG, "unsigned_long", sizeof(long) == 8 ? SERVE_U64 : SERVE_U32, sizeof(long), ARITHMETIC | BITS | LOGIC)    \
  X(MPI_UNSIGNED_LONG_LONG, "unsigned_long_long", SERVE_U64, 8, ARITHMETIC | BITS | LOGIC)                                     \
  X(MPI_C_FLOAT_COMPLEX, "c_float_complex", SERVE_U8, 8, 0)                                                                    \
  X(MPI_C_DOUBLE_COMPLEX, "c_double_complex", SERVE_U8, 16, 0)                                                                 \
  X(MPI_INTEGER1, "integer1", SERVE_I8, 1, ARITHMETIC | BITS)                                                                  \
  X(MPI_INTEGER2, "integer2", SERVE_I16, 2, ARITHMETIC | BITS)                                                                 \
  X(MPI_AINT, "aint", SERVE_I64, 8, ARITHMETIC | BITS)                                                                         \
  X(MPI_OFFSET, "offset", SERVE_I64, 8, ARITHMETIC | BITS)                                                                     \
  X(MPI_COUNT, "count", SERVE_I64, 8, ARITHMETIC | BITS)                                                                       \
  X(MPI_C_BOOL, "c_bool", SERVE_U8, 1, LOGIC)                                                                                  \
  X(MPI_CXX_BOOL, "cxx_bool", SERVE_U8, 1, LOGIC)

#define COUNT_ONE(mpi, ompi, code, size, combined_by) +1
enum { NTYPES = 0 TYPES(COUNT_ONE) };
static struct named types[NTYPES];

void find_handles(void) {
  int i = 0, size = 0;
  comm_world = HANDLE(MPI_COMM_WORLD, "mpi_comm_world");
  comm_self = HANDLE(MPI_COMM_SELF, "mpi_comm_self");
  comm_null = HANDLE(MPI_COMM_NULL, "mpi_comm_null");
  type_byte = HANDLE(MPI_BYTE, "mpi_byte"), type_int = HANDLE(MPI_INT, "mpi_int");
  type_long_long = HANDLE(MPI_LONG_LONG, "mpi_long_long_int"), type_double = HANDLE(MPI_DOUBLE, "mpi_double");
  type_null = HANDLE(MPI_DATATYPE_NULL, "mpi_datatype_null");
  ops[SERVE_SUM] = HANDLE(MPI_SUM, "mpi_op_sum"), ops[SERVE_PROD] = HANDLE(MPI_PROD, "mpi_op_prod");
  ops[SERVE_MIN] = HANDLE(MPI_MIN, "mpi_op_min"), ops[SERVE_MAX] = HANDLE(MPI_MAX, "mpi_op_max");
  ops[SERVE_BAND] = HANDLE(MPI_BAND, "mpi_op_band"), ops[SERVE_BOR] = HANDLE(MPI_BOR, "mpi_op_bor");
  ops[SERVE_BXOR] = HANDLE(MPI_BXOR, "mpi_op_bxor"), ops[SERVE_LAND] = HANDLE(MPI_LAND, "mpi_op_land");
  ops[SERVE_LOR] = HANDLE(MPI_LOR, "mpi_op_lor"), ops[SERVE_LXOR] = HANDLE(MPI_LXOR, "mpi_op_lxor");
#define FIND(mpi, ompi, k, n, by) types[i].type = HANDLE(mpi, "mpi_" ompi), types[i].code = k, types[i].combined_by = by, types[i++].size = n;
  TYPES(FIND)
  // Fortran's may have other sizes, by the compiler's flags, or not be there.
  for (i = 0; i < NTYPES; i++)
    if (types[i].type == (MPI_Datatype)0 || types[i].type == type_null || REAL(PMPI_Type_size)(types[i].type, &size) != MPI_SUCCESS || size != types[i].size)
      types[i].size = 0;
}

const struct named *named(MPI_Datatype type) {
  static __thread int last;
  if (types[last].type != type) {
    for (int i = 0;; i++) {
      if (i == NTYPES) return NULL;
      if (types[i].type == type) {
        last = i;
        break;
      }
    }
  }
  return types[last].size ? &types[last] : NULL;
}

static const int sizes[] = {[SERVE_F32] = 4, [SERVE_F64] = 8, [SERVE_F16] = 2, [SERVE_BF16] = 2, [SERVE_I32] = 4, [SERVE_I64] = 8,
                            [SERVE_U8] = 1, [SERVE_I8] = 1, [SERVE_I16] = 2, [SERVE_U16] = 2, [SERVE_U32] = 4, [SERVE_U64] = 8};

int element_size(int code) { return sizes[code]; }

int operation(const struct named *type, MPI_Op op) {
  for (int o = 0; o < SERVE_OPS; o++)
    if (ops[o] == op) return type->combined_by & (o <= SERVE_MAX ? ARITHMETIC : o <= SERVE_BXOR ? BITS : LOGIC) ? o : NONE;
  return NONE;
}

enum exact exactness(int code, int op) {
  if (op == SERVE_SUM && sizes[code] <= 2 && code > SERVE_BF16) return NEVER; // Open MPI's saturate where there is AVX
  return code > SERVE_BF16 || (op != SERVE_SUM && op != SERVE_PROD) ? ALWAYS : OF_TWO;
}

// signature is equal on all ranks; whether elements lie side by side is not.
int64_t signature(MPI_Datatype type, int *side_by_side) {
  const struct named *t = named(type);
  int size = 0;
  *side_by_side = t != NULL;
  if (t) return t->size;
  return type != type_null && REAL(PMPI_Type_size)(type, &size) == MPI_SUCCESS && size > 0 ? size : 0;
}

// from_bottom makes, of elements with absolute addresses, one whose addresses begin at base: MPI_BOTTOM is NULL in MPICH, whose MPI_Pack
// and MPI_Unpack refuse it.
static int from_bottom(int64_t *count, MPI_Datatype *type, const void *base) {
  if (*count > INT_MAX) return MPI_ERR_COUNT;
  int n = (int)*count, rc;
  MPI_Aint back = -(MPI_Aint)base;
  if ((rc = REAL(PMPI_Type_create_hindexed)(1, &n, &back, *type, type)) != MPI_SUCCESS) return rc;
  *count = 1;
  return REAL(PMPI_Type_commit)(type);
}

// copied packs or unpacks.
static int copied(void *buf, int64_t count, MPI_Datatype type, void *packed, int64_t bytes, MPI_Comm comm, int packs) {
  int rc = MPI_SUCCESS, bottom = !buf && count > 0;
  if (bottom && (rc = from_bottom(&count, &type, buf = packed)) != MPI_SUCCESS) return rc;
#if MPI_VERSION >= 4
  MPI_Count at = 0;
  if (packs) rc = REAL(PMPI_Pack_c)(buf, count, type, packed, bytes, &at, comm);
  else rc = REAL(PMPI_Unpack_c)(packed, bytes, &at, buf, count, type, comm);
#else
  int at = 0;
  if (bytes > INT_MAX) rc = MPI_ERR_COUNT;
  else if (packs) rc = REAL(PMPI_Pack)(buf, (int)count, type, packed, (int)bytes, &at, comm);
  else rc = REAL(PMPI_Unpack)(packed, (int)bytes, &at, buf, (int)count, type, comm);
#endif
  if (bottom) REAL(PMPI_Type_free)(&type);
  return rc;
}

int pack(const void *buf, int64_t count, MPI_Datatype type, void *into, int64_t bytes, MPI_Comm comm) {
  return copied((void *)buf, count, type, into, bytes, comm, 1);
}

int unpack(const void *from, int64_t bytes, void *buf, int64_t count, MPI_Datatype type, MPI_Comm comm) {
  return copied(buf, count, type, (void *)from, bytes, comm, 0);
}
