// Which operators there are a kernel for, of which types. What a type lacks here it has of one that is alike
// (kernels.Alike): signed and unsigned integers differ in their order alone, and to bitwise operators all are bytes.

#define ORDERS(C, t) C(t, min) C(t, max)
#define ARITHMETIC(C, t) C(t, sum) C(t, prod) ORDERS(C, t)
#define LOGIC(C, t) C(t, land) C(t, lor) C(t, lxor)
#define ALL_OPERATORS(C, D)                                                                                \
  ARITHMETIC(C, f32) ARITHMETIC(C, f64) ARITHMETIC(C, f16) ARITHMETIC(C, bf16)                             \
  ARITHMETIC(C, i32) ARITHMETIC(C, i64) ARITHMETIC(C, u8) ARITHMETIC(C, u16)                               \
  LOGIC(C, i32) LOGIC(C, i64) LOGIC(C, u8) LOGIC(C, u16)                                                   \
  ORDERS(C, i8) ORDERS(C, i16) ORDERS(C, u32) ORDERS(C, u64)                                               \
  C(u8, band) C(u8, bor) C(u8, bxor)                                                                       \
  D(f32) D(f64) D(f16) D(bf16) D(i32) D(i64) D(u8) D(i8) D(i16) D(u16) D(u32) D(u64)
