// Package contract is the interface of the existing loxilb as data: its REST operations, their
// values, metrics, commands of loxicmd and flags of the daemon, each with its state in this build.
// The router answers missing operations by it, and the daemon refuses flags by it. Tests of
// httpapi, cli and config compare each row with the code, and docs/compatibility.md is generated
// from it.
//
// A row is a line. The rows of one object are adjacent, in their own section. A change of an
// object's implementation changes the state of its rows; a test names them.
package contract

import (
	"slices"
	"strings"
)

// State is the state of a row in this build.
type State uint8

// The states.
const (
	Same     State = iota // unchanged
	Better                // unchanged, with additions or more precise; the note has details
	Differs               // different; the note has the reason
	NotThere              // refused with the note as error
	Ours                  // not in the existing loxilb
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
	Note         string // NotThere: the sentence of the 501 answer: the operation's name, that it is missing, and an alternative
}

// Command is a command of loxicmd.
type Command struct {
	Path    string // "create endpoint"; "" is loxicmd itself
	Aliases string // with blanks between
	Flags   string // by old and canonical names, as name or name,shorthand
	Columns string // of get, with commas between
	Wide    string // of get -o wide; "": Columns
	Without string // missing flags
	State   State
	Note    string // NotThere: loxicmd's sentence
}

// Flag is a flag of the daemon.
type Flag struct {
	Name, Short, Default string // a switch has the default "false"
	State                State
	Inert                bool   // accepted without effect, and the note is logged: --NAME has no effect: NOTE
	Compat               bool   // effective with --compat
	Note                 string // NotThere: the sentence that refuses it
}

// each yields the rows of all sections.
func each[Row any](sections []Section[Row]) (rows []Row) {
	for _, s := range sections {
		rows = append(rows, s.Rows...)
	}
	return rows
}

// AllOperations returns the operations of all sections.
func AllOperations() []Operation { return each(Operations()) }

// AllCommands returns the commands of all sections.
func AllCommands() []Command { return each(Commands()) }

// AllMetrics returns the metrics of all sections.
func AllMetrics() []Metric { return each(Metrics()) }

// AllFlags returns the flags of all sections.
func AllFlags() []Flag { return each(Flags()) }

// Names returns the command's last word and its aliases.
func (c Command) Names() []string {
	words := strings.Fields(c.Path)
	return append(words[max(0, len(words)-1):], strings.Fields(c.Aliases)...)
}

// Missing returns the sentence about a missing command, by its verb and its object.
func Missing(verb, object string) (string, bool) {
	for _, c := range AllCommands() {
		if c.State == NotThere && strings.HasPrefix(c.Path, verb+" ") && slices.Contains(c.Names(), object) {
			return c.Note, true
		}
	}
	return "", false
}
