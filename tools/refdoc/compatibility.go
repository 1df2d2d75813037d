package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"loxilb/internal/contract"
	"loxilb/tools/markdown"
)

const compatibilityHead = `<!-- Generated from internal/contract by tools/refdoc (make generate). Do not edit. -->

# Compatibility

How loxilb treats the REST API, the command line and the daemon's flags of the existing loxilb. A
test compares each row with the router, the commands and the flags. What is not listed works as
before, some of it better; [api/openapi.yaml](../api/openapi.yaml) and the [manual pages](man) have
additions, and [loxilb-compatibility(7)](man/loxilb-compatibility.7) also has what is better.

- *differs*: works differently; the note says how and why
- *not there*: refused. An operation or a property's value answers 501, a flag of the daemon ends
  the start

In all of them:

- Deletion of a missing object by an operation of the existing loxilb succeeds, with a header
  Warning.
- *Kept*: over restarts, and created again when it vanishes. Refusals of such objects give the
  reason, with 400, 404 or 409.
- *Force*: refused without --force (force=true) if it would cut off or intercept connections of the
  machine itself, such as your ssh session or the request.

`

// phrases are parts of notes that the introduction explains once.
func phrases() *strings.Replacer {
	return strings.NewReplacer(
		"a missing one is success with a header Warning; ", "",
		"a missing one is success with a header Warning", "",
		"; refusals give the reason, with 400, 404 or 409", "",
		"kept over restarts, recreated when it vanishes", "*kept*",
		"kept over restarts", "*kept*",
		"requires --force if it carries your ssh session, or other connections of the machine itself", "*force*",
		"one that carries connections of the machine itself, such as the request's, needs force=true", "*force*",
		"a service that would intercept connections of the machine itself, such as the request's, needs force=true", "*force*",
		"requires --force if a service would intercept your ssh session, the API, or other connections of the machine itself", "*force*",
	)
}

// compatibility returns docs/compatibility.md, or with isWhole the source of its manual page, which
// also lists improvements.
func compatibility(isWhole bool) string {
	w := &writer{isWhole: isWhole}
	w.WriteString(compatibilityHead)
	chapter(w, "REST API", contract.Operations(), func(o contract.Operation) row { return row{code(o.Method + " " + o.Path), o.State, o.Note} })
	chapter(w, "Properties", contract.Values(), func(v contract.Value) row { return row{code(v.Property), v.State, v.Note} })
	chapter(w, "Metrics", contract.Metrics(), func(m contract.Metric) row { return row{code(m.Name), m.State, m.Note} })
	chapter(w, "loxicmd", contract.Commands(), commandRow)
	chapter(w, "The daemon's flags", contract.Flags(), flagRow)
	return strings.TrimRight(w.String(), "\n") + "\n"
}

// A writer collects a page.
type writer struct {
	strings.Builder
	isWhole bool
}

// A row is an operation, property, metric, command or flag as the page shows it.
type row struct {
	what  string
	state contract.State
	note  string
}

// chapter writes each section, with a line for rows with the same state and note. It omits rows
// that work as before, additions, and rows that only this loxilb has.
func chapter[Row any](b *writer, title string, sections []contract.Section[Row], rowOf func(Row) row) {
	fmt.Fprintf(b, "## %s\n", title)
	short := phrases()
	for _, s := range sections {
		var rows []row
		for _, each := range s.Rows {
			r := rowOf(each)
			r.note = strings.TrimSuffix(short.Replace(r.note), "; ")
			if r.state == contract.Better {
				r.note = withoutAdditions(r.note)
			}
			if r.state == contract.Ours || r.note == "" || r.state == contract.Better && !b.isWhole {
				continue
			}
			if i := slices.IndexFunc(rows, func(other row) bool { return other.state == r.state && other.note == r.note }); i >= 0 {
				rows[i].what += ", " + r.what
			} else {
				rows = append(rows, r)
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n### %s\n\n", s.Title)
		for _, r := range rows {
			b.WriteString(markdown.Item(fmt.Sprintf("%s *%s*: %s", r.what, r.state, r.note)))
		}
	}
	b.WriteString("\n")
}

// withoutAdditions removes the parts of a note that only describe additions.
func withoutAdditions(note string) string {
	parts := slices.DeleteFunc(strings.Split(note, "; "), func(part string) bool {
		return strings.HasPrefix(part, "also ") || strings.HasPrefix(part, "IPv6") || part == "over IPv6 too"
	})
	return strings.Join(parts, "; ")
}

// commandRow has no note about commands that can do more than before: the manual page has it.
func commandRow(c contract.Command) row {
	note := c.Note
	if c.State == contract.Better {
		note = ""
	}
	if c.MissingFlags != "" {
		note = "without --" + strings.Join(strings.Fields(c.MissingFlags), ", --") + "; " + note
	}
	return row{code(cmp.Or(c.Path, "loxicmd")), c.State, note}
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
