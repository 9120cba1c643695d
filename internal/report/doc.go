// Package report writes tables: aligned text for people, CSV and JSON for
// programs.
//
// A table is a list of columns, each a name and a function of a row, so that
// all formats show the same values under the same names. The rules hold for
// every table of the project:
//
//   - A name is in snake case and ends in its unit: exposed_ms, bucket_bytes.
//     Durations are written in milliseconds.
//   - A missing value (nil, an empty Optional, NaN, infinity) is null in JSON,
//     an empty cell in CSV and a dash in text. No key is ever left out.
//   - What all rows have in common (the Head) is part of the one object of
//     JSON, next to its "rows", and stands before the columns in every line of
//     CSV.
//   - Numbers for programs are rounded to six digits after the point.
package report
