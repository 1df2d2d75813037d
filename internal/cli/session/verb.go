package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"loxilb/internal/lb"
)

// Verb is the first word of a command.
type Verb string

// The verbs.
const (
	Create   Verb = "create"
	Get      Verb = "get"
	Describe Verb = "describe"
	Delete   Verb = "delete"
	Set      Verb = "set"
	Kill     Verb = "kill"
	Drain    Verb = "drain"
	Undrain  Verb = "undrain"
	Node     Verb = "node" // its commands concern this node as a whole
	Root     Verb = ""     // of commands without a verb
)

// Commands are the commands of an area, by verb.
type Commands map[Verb][]*cobra.Command

// NoObject refuses a word after a verb that is not a subcommand.
func NoObject(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s: unknown object %q%s (allowed: %s)", cmd.CommandPath(), args[0], lb.DidYouMean(args[0], objects(cmd)), strings.Join(objects(cmd), ", "))
}

// NeedObject refuses a verb without an argument, with the allowed ones and an example.
func NeedObject(cmd *cobra.Command, _ []string) error {
	text := fmt.Sprintf("%s needs an object (allowed: %s)", cmd.CommandPath(), strings.Join(objects(cmd), ", "))
	if example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n"); example != "" {
		text += ", as in: " + example
	}
	return errors.New(text)
}

func objects(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	return names
}

// Exactly requires one argument, and names it in the error.
func Exactly(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return errors.New("missing argument: " + what)
		case 1:
			return nil
		}
		return fmt.Errorf("unexpected argument %q", args[1])
	}
}

// Arguments requires the named arguments, and names missing ones in the error. One in brackets is
// optional.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := cmd.CommandPath() + " " + strings.Join(names, " ")
		switch {
		case len(args) < len(names) && !strings.HasPrefix(names[len(args)], "["):
			return fmt.Errorf("missing argument %s: %s", names[len(args)], usage)
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q: %s", args[len(names)], usage)
		}
		return nil
	}
}
