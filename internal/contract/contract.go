// Package contract lists the interface of the existing loxilb: its REST operations, their values,
// metrics, commands of loxicmd and flags of the daemon, each with its state in this build. It is
// the source of the router's 501 answers, of the flags that the daemon refuses, and of
// docs/compatibility.md. Tests of httpapi, cli and config compare each row with the code.
//
// The rows of one object are adjacent, in their own section.
package contract

import (
	"slices"
	"strings"
)

// State is the state of a row in this build.
type State uint8

// The states.
const (
	Same        State = iota
	Better            // compatible, with additions; the note has details
	Differs           // different; the note has the reason
	Unsupported       // refused with the note as error
	Ours              // not in the existing loxilb
)

// String returns the state as users read it.
func (s State) String() string {
	return [...]string{"same", "better", "differs", "not there", "ours only"}[s]
}

// Section is a group of rows.
type Section[Row any] struct {
	Title string
	Rows  []Row
}

// Operation is an operation of the REST API.
type Operation struct {
	Method, Path string // below /netlox/v1
	State        State
	Note         string // if Unsupported, the text of the 501 answer, with an alternative
}

// Command is a command of loxicmd.
type Command struct {
	Path         string // "create endpoint"; "" is loxicmd itself
	Aliases      string // separated by blanks
	Flags        string // by old and canonical names, as name or name,shorthand
	Columns      string // of get, separated by commas
	Wide         string // of get -o wide; "": Columns
	MissingFlags string
	State        State
	Note         string // if Unsupported, loxicmd's error
}

// Flag is a flag of the daemon.
type Flag struct {
	Name, Short, Default string // a switch has the default "false"
	State                State
	Inert                bool   // accepted without effect; logged as "--NAME has no effect: NOTE"
	Compat               bool   // has an effect with --compat
	Note                 string // if Unsupported, the error
}

// allRows returns the rows of all sections.
func allRows[Row any](sections []Section[Row]) (rows []Row) {
	for _, s := range sections {
		rows = append(rows, s.Rows...)
	}
	return rows
}

// AllOperations returns the operations of all sections.
func AllOperations() []Operation { return allRows(Operations()) }

// AllCommands returns the commands of all sections.
func AllCommands() []Command { return allRows(Commands()) }

// AllMetrics returns the metrics of all sections.
func AllMetrics() []Metric { return allRows(Metrics()) }

// AllFlags returns the flags of all sections.
func AllFlags() []Flag { return allRows(Flags()) }

// Names returns the command's last word and its aliases.
func (c Command) Names() []string {
	words := strings.Fields(c.Path)
	return append(words[max(0, len(words)-1):], strings.Fields(c.Aliases)...)
}

// Missing returns the note of an unsupported command, by its verb and its object.
func Missing(verb, object string) (string, bool) {
	for _, c := range AllCommands() {
		if c.State == Unsupported && strings.HasPrefix(c.Path, verb+" ") && slices.Contains(c.Names(), object) {
			return c.Note, true
		}
	}
	return "", false
}
