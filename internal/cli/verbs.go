package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"loxilb/internal/contract"
)

// The verbs, each with what it is done to: one line each, by the contract's order of objects.

func createVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "create", Short: "create or update what is balanced", Args: noObject,
		Example: "  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1\n  loxicmd create -f services.yaml",
	}
	c.RunE = fileFlag(o, c, false)
	c.AddCommand(
		createLB(o),
		createEndpoint(o),
		createFirewall(o),
		createVLAN(o),
		createVLANMember(o),
		createVXLAN(o),
		createVXLANPeer(o),
		createFDB(o),
		createNeighbor(o),
		createRoute(o),
		createAddress(o),
		createPolicy(o),
		createMirror(o),
		createUser(o),
	)
	return c
}

func getVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "get", Short: "show what is there", Example: "  loxicmd get lb -o wide\n  loxicmd get status --failed\n  loxicmd get ct", Args: noObject, RunE: needObject,
	}
	c.AddCommand(
		getLB(o),
		getEndpoint(o),
		getFirewall(o),
		getDrain(o),
		getCT(o),
		getProcess(o),
		getDevice(o),
		getFilesystem(o),
		getPort(o),
		getVLAN(o),
		getVXLAN(o),
		getFDB(o),
		getNeighbor(o),
		getRoute(o),
		getAddress(o),
		getPolicy(o),
		getHastate(o),
		getMirror(o),
		getVersion(o),
		getLogLevel(o),
		getStatus(o),
		getRevisions(o),
		getEvents(o),
		getUser(o),
		getAudit(o),
	)
	return c
}

func deleteVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "delete", Short: "delete what is balanced", Args: noObject,
		Long:    "With a file, all that is in it is deleted, or nothing; what is not there is left out.",
		Example: "  loxicmd delete lb 20.20.20.1 --tcp=2020\n  loxicmd delete -f services.yaml",
	}
	c.RunE = fileFlag(o, c, true)
	c.AddCommand(
		deleteLB(o),
		deleteEndpoint(o),
		deleteFirewall(o),
		deleteVLAN(o),
		deleteVLANMember(o),
		deleteVXLAN(o),
		deleteVXLANPeer(o),
		deleteFDB(o),
		deleteNeighbor(o),
		deleteRoute(o),
		deleteAddress(o),
		deletePolicy(o),
		deleteMirror(o),
		deleteUser(o),
	)
	return c
}

func describeVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "describe", Short: "show all that is known of one object", Example: "  loxicmd describe lb web", Args: noObject, RunE: needObject,
	}
	c.AddCommand(describeLB(o))
	return c
}

func setVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "set", Short: "change one thing of what is balanced", Example: "  loxicmd set endpoint 31.31.31.1:5001 --weight=5", Args: noObject, RunE: needObject,
	}
	c.AddCommand(
		setEndpoint(o),
		setLogLevel(o),
		setLogin(o),
		setLogout(o),
		setUser(o),
		setHastate(o),
	)
	return c
}

func killVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "kill", Short: "end connections", Example: "  loxicmd kill ct --source=100.100.100.7", Args: noObject, RunE: needObject,
	}
	c.AddCommand(killCT(o))
	return c
}

func drainVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "drain", Short: "have endpoints take no new connections", Example: "  loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s", Args: noObject, RunE: needObject,
	}
	c.AddCommand(drainEndpoint(o))
	return c
}

func undrainVerb(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "undrain", Short: "let them take new connections again", Example: "  loxicmd undrain endpoint 31.31.31.1:5001", Args: noObject, RunE: needObject,
	}
	c.AddCommand(undrainEndpoint(o))
	return c
}

// noObject refuses the word behind a verb that no subcommand took.
func noObject(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s knows no %q, only %s", cmd.CommandPath(), args[0], strings.Join(objects(cmd), ", "))
}

// missingCommand finds a command of the contract in a command line that this program does not have.
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
		if c.State == contract.NotThere && !strings.Contains(c.Path, " ") && slices.Contains(args, c.Path) {
			return fmt.Errorf("loxicmd %s: %s", c.Path, c.Note)
		}
	}
	return nil
}

func needObject(cmd *cobra.Command, _ []string) error {
	return fmt.Errorf("%s what? One of %s", cmd.CommandPath(), strings.Join(objects(cmd), ", "))
}

func objects(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	return names
}
