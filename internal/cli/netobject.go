package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// Commands about objects of the kernel's network: each is one request.

// arguments asks for the arguments that names names, and says which is missing.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing: %s %s", names[len(args)], cmd.CommandPath(), strings.Join(names, " "))
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many: %s %s", args[len(names)], cmd.CommandPath(), strings.Join(names, " "))
		}
		return nil
	}
}

// creating sends a request that creates an object, and prints what came of it.
func (o *options) creating(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	return o.created(o.answer(request(ctx, client)))
}

// deleting sends a request that deletes an object, and prints what came of it.
func (o *options) deleting(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	body, err := o.answer(request(ctx, client))
	if err != nil {
		return err
	}
	return o.done(body)
}

// showing prints what a request answers: as it is, or as the table that show makes of it.
func showing[List any](ctx context.Context, o *options, request func(context.Context, *v1.Client) (*http.Response, error), show func(*List) *table) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	body, err := o.answer(request(ctx, client))
	if err != nil {
		return err
	}
	if o.output == "json" || o.output == "yaml" {
		return o.printRaw(body)
	}
	var list List
	if err := decode(body, &list); err != nil {
		return err
	}
	return o.print(show(&list).String())
}

// ownWay refuses to take away what the one who asks has come by, if that is a session of ssh. holds tells it of an address of this machine
// and of the other one.
func ownWay(force bool, what string, holds func(here, there netip.Addr) bool) error {
	words := strings.Fields(os.Getenv("SSH_CONNECTION")) // client, its port, server, its port
	if force || len(words) != 4 {
		return nil
	}
	there, err1 := netip.ParseAddr(words[0])
	here, err2 := netip.ParseAddr(words[2])
	if errors.Join(err1, err2) != nil || !holds(here.Unmap(), there.Unmap()) {
		return nil
	}
	return fmt.Errorf("your own ssh session, from %s to %s, comes by %s: --force does it all the same", there, here, what)
}

// ownDevice is ownWay of an interface of this machine.
func ownDevice(force bool, name string) error {
	return ownWay(force, "interface "+name, func(here, _ netip.Addr) bool {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return false
		}
		list, _ := i.Addrs() // of an interface that is gone by now there are none
		return slices.ContainsFunc(list, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr() == here
		})
	})
}

// forceFlag is the flag that lets ownWay pass.
func forceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "also if you are reached by it")
}
