package main

import (
	"fmt"
	"strings"

	"loxilb/internal/contract"
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

// page is docs/compatibility.md.
func page() string {
	var b strings.Builder
	b.WriteString(intro)
	chapter(&b, "REST API", contract.Operations(), func(o contract.Operation) (string, contract.State, string) {
		return code(o.Method + " " + o.Path), o.State, o.Note
	})
	chapter(&b, "Properties", contract.Values(), func(v contract.Value) (string, contract.State, string) { return code(v.Property), v.State, v.Note })
	chapter(&b, "Metrics", contract.Metrics(), func(m contract.Metric) (string, contract.State, string) { return code(m.Name), m.State, m.Note })
	chapter(&b, "loxicmd", contract.Commands(), commandCells)
	chapter(&b, "The daemon's flags", contract.Flags(), flagCells)
	return b.String()
}

// chapter writes a table for each section, so that changes of different objects do not conflict.
func chapter[Row any](b *strings.Builder, title string, sections []contract.Section[Row], cells func(Row) (string, contract.State, string)) {
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

func commandCells(c contract.Command) (string, contract.State, string) {
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

func flagCells(f contract.Flag) (string, contract.State, string) {
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
