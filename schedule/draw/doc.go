// Package draw makes pictures of schedules.
//
// SVG draws a collective as a space-time diagram, like the timetables that
// railways draw of their trains: time runs to the right in the steps of package
// schedule/check, every rank is a line, and a message is a stroke from its
// sender's line to its receiver's. A chunk keeps its color and its number all
// the way, so a person sees
//
//   - the pipeline of a chunked chain fill and drain: parallel diagonals;
//   - a level begin while the level below it still runs;
//   - who waits: a line without strokes.
//
// Below the ranks stands how many messages travel in each step.
//
//	svg, err := draw.SVG(all, draw.Options{Title: "reduce chain", Group: 4})
//
// The picture is one file without scripts, fonts or links, the same bytes for
// the same schedules, with colors that color-blind people can tell apart, and
// a light and a dark form (it follows the reader's setting).
//
// It must not know how a schedule was built: schedules in, text out.
package draw
