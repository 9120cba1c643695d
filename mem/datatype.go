package mem

import "fmt"

// Datatype is the type of a buffer's elements.
type Datatype uint8

// The datatypes that every reduction supports.
const (
	Float32 Datatype = iota
	Float64
	Float16  // IEEE 754 binary16, stored as its bits
	BFloat16 // the upper half of a Float32, stored as its bits
	Int32
	Int64
	Uint8
	Int8
	Int16
	Uint16
	Uint32
	Uint64

	NumDatatypes = int(Uint64) + 1 // for tables by Datatype
)

// Datatypes lists every Datatype, for tests and tables.
var Datatypes = []Datatype{Float32, Float64, Float16, BFloat16, Int32, Int64, Uint8, Int8, Int16, Uint16, Uint32, Uint64}

var datatypes = [...]struct {
	name string
	size int
}{
	Float32: {"f32", 4}, Float64: {"f64", 8}, Float16: {"f16", 2}, BFloat16: {"bf16", 2},
	Int32: {"i32", 4}, Int64: {"i64", 8}, Uint8: {"u8", 1}, Int8: {"i8", 1},
	Int16: {"i16", 2}, Uint16: {"u16", 2}, Uint32: {"u32", 4}, Uint64: {"u64", 8},
}

// Size returns the size of one element in bytes.
func (d Datatype) Size() int { return datatypes[d].size }

// Bytes returns the size of n elements in bytes.
func (d Datatype) Bytes(n int) int { return n * datatypes[d].size }

// Valid reports whether d is one of Datatypes.
func (d Datatype) Valid() bool { return int(d) < len(datatypes) }

// String returns the short name: f32, f64, f16, bf16, i32, i64, u8, i8, i16, u16, u32, u64.
func (d Datatype) String() string {
	if !d.Valid() {
		return fmt.Sprintf("datatype(%d)", uint8(d))
	}
	return datatypes[d].name
}

// Float reports whether d is a floating-point type.
func (d Datatype) Float() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// ParseDatatype is the inverse of String.
func ParseDatatype(s string) (Datatype, error) {
	for _, d := range Datatypes {
		if datatypes[d].name == s {
			return d, nil
		}
	}
	return 0, fmt.Errorf("mem: unknown datatype %q: use one of %v", s, Datatypes)
}

// Op is how two elements combine in a reduction. All are commutative; over
// floating-point numbers Sum and Prod are not associative, so the order of
// combination is part of the result's bits.
type Op uint8

// The reduction operators.
const (
	Sum Op = iota
	Prod
	Min
	Max
	BitAnd // of integers, as the other bitwise and logical operators are
	BitOr
	BitXor
	LogicalAnd // of integers as truth values, where 0 is false; the result is 0 or 1
	LogicalOr
	LogicalXor
	// Avg is Sum divided by the number of contributions, of floating-point types.
	// It is what a whole collective does, not two elements: package collectives makes it of Sum,
	// kernels refuse it, and Ops does not list it.
	Avg

	NumOps = int(Avg) // that combine two elements, for tables by Op
)

// Ops lists every Op that combines two elements, for tests and tables.
var Ops = []Op{Sum, Prod, Min, Max, BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor}

var ops = [...]string{
	Sum: "sum", Prod: "prod", Min: "min", Max: "max", BitAnd: "band", BitOr: "bor", BitXor: "bxor",
	LogicalAnd: "land", LogicalOr: "lor", LogicalXor: "lxor", Avg: "avg",
}

// Combines reports whether o combines two elements of type d: bitwise and logical operators combine
// integers alone.
func (o Op) Combines(d Datatype) bool { return o.Valid() && (o <= Max || !d.Float()) }

// OpsOf lists every Op that combines two elements of type d.
func OpsOf(d Datatype) []Op {
	if d.Float() {
		return Ops[:Max+1]
	}
	return Ops
}

// Valid reports whether o is one of Ops.
func (o Op) Valid() bool { return o < Avg }

// String returns sum, prod, min, max, band, bor, bxor, land, lor, lxor or avg.
func (o Op) String() string {
	if int(o) >= len(ops) {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return ops[o]
}

// ParseOp is the inverse of String.
func ParseOp(s string) (Op, error) {
	for o, name := range ops {
		if name == s {
			return Op(o), nil
		}
	}
	return 0, fmt.Errorf("mem: unknown op %q: use one of %v", s, ops)
}
