package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Exactly asks for one argument, and says which when it is missing.
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

// Arguments asks for the arguments that names names, and says which is missing.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("missing argument %s: %s %s", names[len(args)], cmd.CommandPath(), strings.Join(names, " "))
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q: %s %s", args[len(names)], cmd.CommandPath(), strings.Join(names, " "))
		}
		return nil
	}
}
