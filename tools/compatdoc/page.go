package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"loxilb/internal/contract"
)

const intro = `<!-- Generated from internal/contract (make generate). Do not edit. -->

# Compatibility

How loxilb treats the REST API, the command line and the daemon's flags of the existing loxilb. A test
compares each row with the router, the commands and the flags.

- *same*: works as before
- *better*: works as before, with more or more exact results
- *differs*: works differently; the note says how and why
- *not there*: refused. An operation or a property's value answers 501, a flag of the daemon ends the
  start
- *ours only*: the existing loxilb lacks it

Operations of the existing loxilb that delete a missing object succeed, with a header Warning.

`

// missing is the note of most deletions; the introduction has it once.
const missing = "a missing one is success with a header Warning"

// page is docs/compatibility.md.
func page() string {
	var b strings.Builder
	b.WriteString(intro)
	chapter(&b, "REST API", contract.Operations(), func(o contract.Operation) row { return row{code(o.Method + " " + o.Path), o.State, o.Note} })
	chapter(&b, "Properties", contract.Values(), func(v contract.Value) row { return row{code(v.Property), v.State, v.Note} })
	chapter(&b, "Metrics", contract.Metrics(), func(m contract.Metric) row { return row{code(m.Name), m.State, m.Note} })
	chapter(&b, "loxicmd", contract.Commands(), commandRow)
	chapter(&b, "The daemon's flags", contract.Flags(), flagRow)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// A row is an operation, property, metric, command or flag as the page shows it.
type row struct {
	what  string
	state contract.State
	note  string
}

// chapter writes each section: a table of the rows with a note, those with the same note in one
// row, and lists of the others by state.
func chapter[Row any](b *strings.Builder, title string, sections []contract.Section[Row], rowOf func(Row) row) {
	fmt.Fprintf(b, "## %s\n", title)
	for _, s := range sections {
		fmt.Fprintf(b, "\n### %s\n\n", s.Title)
		var noted, plain []row
		for _, each := range s.Rows {
			r := rowOf(each)
			r.note = strings.TrimSuffix(strings.TrimSuffix(r.note, missing), "; ")
			list := &noted
			if r.note == "" {
				list = &plain
			}
			if i := slices.IndexFunc(*list, func(other row) bool { return other.state == r.state && other.note == r.note }); i >= 0 {
				(*list)[i].what += ", " + r.what
			} else {
				*list = append(*list, r)
			}
		}
		if len(noted) > 0 {
			b.WriteString("| | | |\n|---|---|---|\n")
		}
		for _, r := range noted {
			fmt.Fprintf(b, "| %s | %s | %s |\n", r.what, r.state, strings.ReplaceAll(r.note, "|", `\|`))
		}
		if len(noted) > 0 && len(plain) > 0 {
			b.WriteString("\n")
		}
		slices.SortStableFunc(plain, func(x, y row) int { return cmp.Compare(x.state, y.state) })
		for _, r := range plain {
			fmt.Fprintf(b, "- *%s*: %s\n", r.state, r.what)
		}
	}
	b.WriteString("\n")
}

func commandRow(c contract.Command) row {
	what := cmp.Or(c.Path, "loxicmd")
	aliases := ""
	if c.Aliases != "" {
		aliases = " (" + strings.Join(strings.Fields(c.Aliases), ", ") + ")"
	}
	var flags []string
	for f := range strings.FieldsSeq(c.Flags) {
		name, _, _ := strings.Cut(f, ",")
		flags = append(flags, "--"+name)
	}
	if len(flags) > 0 {
		aliases += " " + code(strings.Join(flags, " "))
	}
	note := c.Note
	if c.Without != "" {
		note = "without --" + strings.Join(strings.Fields(c.Without), ", --") + "; " + note
	}
	return row{code(what) + aliases, c.State, note}
}

func flagRow(f contract.Flag) row {
	what := "--" + f.Name
	if f.Short != "" {
		what += ", -" + f.Short
	}
	note := f.Note
	if f.Inert {
		note = "no effect: " + note
	}
	return row{code(what), f.State, note}
}

func code(s string) string { return "`" + s + "`" }
