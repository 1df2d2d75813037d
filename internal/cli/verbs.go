package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"loxilb/internal/cli/diagnose"
	"loxilb/internal/cli/files"
	"loxilb/internal/cli/machine"
	"loxilb/internal/cli/network"
	"loxilb/internal/cli/services"
	"loxilb/internal/cli/session"
	"loxilb/internal/cli/traffic"
	"loxilb/internal/cli/users"
	"loxilb/internal/contract"
)

// areas returns the functions that make the commands of each area, and of registered kinds. Each
// area is a folder of this package.
func areas() []func(*session.Options) session.Commands {
	return []func(*session.Options) session.Commands{
		session.RegisteredCommands,
		services.Commands,
		traffic.Commands,
		network.Commands,
		files.Commands,
		machine.Commands,
		users.Commands,
		diagnose.Commands,
	}
}

// addCommands adds the commands of all areas to their verbs.
func addCommands(root *cobra.Command, o *session.Options) {
	below := map[session.Verb]*cobra.Command{session.Root: root}
	for name, c := range verbs() {
		c.Use, c.Args, c.RunE = string(name), session.NoObject, session.NeedObject
		below[name] = c
		root.AddCommand(c)
	}
	for _, commands := range areas() {
		for verb, list := range commands(o) {
			below[verb].AddCommand(list...)
		}
	}
	below[session.Create].RunE = files.FileFlag(o, below[session.Create], false)
	below[session.Delete].RunE = files.FileFlag(o, below[session.Delete], true)
}

// verbs returns the commands of verbs, which need an object.
func verbs() map[session.Verb]*cobra.Command {
	return map[session.Verb]*cobra.Command{
		session.Create: {
			Short:   "Create or update an object",
			Example: "  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1\n  loxicmd create -f services.yaml",
		},
		session.Get: {
			Short:   "Show objects",
			Example: "  loxicmd get lb -o wide\n  loxicmd get status --failed\n  loxicmd get ct",
		},
		session.Describe: {
			Short:   "Show one object in full, with its status and events",
			Example: "  loxicmd describe lb web",
		},
		session.Delete: {
			Short:   "Delete objects",
			Long:    "With a file, deletes all objects in it, or none; missing objects are skipped.",
			Example: "  loxicmd delete lb 20.20.20.1 --tcp=2020\n  loxicmd delete -f services.yaml",
		},
		session.Set: {
			Short:   "Change one property of an object",
			Example: "  loxicmd set endpoint 31.31.31.1:5001 --weight=5",
		},
		session.Kill: {
			Short:   "Terminate connections",
			Example: "  loxicmd kill ct --source=100.100.100.7",
		},
		session.Drain: {
			Short:   "Drain endpoints: stop sending them new connections",
			Example: "  loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s",
		},
		session.Undrain: {
			Short:   "Undrain endpoints: send them new connections again",
			Example: "  loxicmd undrain endpoint 31.31.31.1:5001",
		},
		session.Node: {
			Short:   "Take this node out of service for maintenance, and put it back",
			Example: "  loxicmd node drain --deadline=5m --wait\n  loxicmd node resume",
		},
	}
}

// missingCommand finds a command of the existing loxicmd that this one lacks.
func missingCommand(root *cobra.Command, args []string) error {
	verbs := root.Commands()
	for i, word := range args {
		at := slices.IndexFunc(verbs, func(c *cobra.Command) bool { return c.Name() == word })
		if at < 0 {
			continue
		}
		for _, object := range args[i+1:] {
			if strings.HasPrefix(object, "-") {
				continue
			}
			if note, ok := contract.Missing(word, object); ok {
				return fmt.Errorf("loxicmd %s %s: %s", word, object, note)
			}
			return nil
		}
	}
	for _, c := range contract.AllCommands() {
		if c.State == contract.Unsupported && !strings.Contains(c.Path, " ") && slices.Contains(args, c.Path) {
			return fmt.Errorf("loxicmd %s: %s", c.Path, c.Note)
		}
	}
	return nil
}
