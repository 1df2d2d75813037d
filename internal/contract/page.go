package contract

import (
	"fmt"
	"strings"
)

const intro = `<!-- Generated from internal/contract (make generate). Do not edit. -->

# Compatibility

How loxilb treats the REST API, the command line and the daemon's flags of the existing loxilb. A test
compares each row with the router, the commands and the flags.

| state | meaning |
|---|---|
| same | works as before |
| better | works as before, with more or more exact results |
| differs | works differently; the note says how and why |
| not there | refused: an operation or a property's value answers 501, a flag of the daemon ends the start |
| ours only | the existing loxilb lacks it |

`

// Page is docs/compatibility.md.
func Page() string {
	var b strings.Builder
	b.WriteString(intro)
	chapter(&b, "REST API", Operations(), func(o Operation) (string, State, string) {
		return code(o.Method + " " + o.Path), o.State, o.Note
	})
	chapter(&b, "Properties", Values(), func(v Value) (string, State, string) { return code(v.Property), v.State, v.Note })
	chapter(&b, "Metrics", Metrics(), func(m Metric) (string, State, string) { return code(m.Name), m.State, m.Note })
	chapter(&b, "loxicmd", Commands(), Command.cells)
	chapter(&b, "The daemon's flags", Flags(), Flag.cells)
	return b.String()
}

// chapter writes a table for each section, so that changes of different objects do not conflict.
func chapter[Row any](b *strings.Builder, title string, sections []Section[Row], cells func(Row) (string, State, string)) {
	fmt.Fprintf(b, "## %s\n", title)
	for _, s := range sections {
		fmt.Fprintf(b, "\n### %s\n\n| | | |\n|---|---|---|\n", s.Title)
		for _, r := range s.Rows {
			what, state, note := cells(r)
			fmt.Fprintf(b, "| %s | %s | %s |\n", what, state, strings.ReplaceAll(note, "|", `\|`))
		}
	}
	b.WriteString("\n")
}

func (c Command) cells() (string, State, string) {
	what := code(strings.TrimSpace("loxicmd " + c.Path))
	if c.Aliases != "" {
		what += " (" + strings.Join(strings.Fields(c.Aliases), ", ") + ")"
	}
	for f := range strings.FieldsSeq(c.Flags) {
		name, _, _ := strings.Cut(f, ",")
		what += " " + code("--"+name)
	}
	note := c.Note
	if c.Without != "" {
		note = "without --" + strings.Join(strings.Fields(c.Without), ", --") + "; " + note
	}
	return what, c.State, note
}

func (f Flag) cells() (string, State, string) {
	what := "--" + f.Name
	if f.Short != "" {
		what += ", -" + f.Short
	}
	note := f.Note
	if f.Inert {
		note = "no effect: " + note
	}
	return code(what), f.State, note
}

func code(s string) string { return "`" + s + "`" }
