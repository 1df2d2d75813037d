package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	v1 "loxilb/api/v1"
)

// Change sends a request that changes something, and prints its result.
func (o *Options) Change(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	body, err := o.Answer(request(ctx, client))
	if err != nil {
		return err
	}
	return o.Done(body)
}

// Create is Change for a request that creates an object.
func (o *Options) Create(ctx context.Context, request func(context.Context, *v1.Client) (*http.Response, error)) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	return o.Created(o.Answer(request(ctx, client)))
}

// ForceText returns the parameter of a flag.
func ForceText(force bool) string {
	if !force {
		return ""
	}
	return strconv.FormatBool(force)
}

// ForceFlag adds the flag that overrides a refusal.
func ForceFlag(cmd *cobra.Command, force *bool) {
	cmd.Flags().BoolVar(force, "force", false, "proceed even if your own connection uses it")
}

// Created prints the answer to a request that creates. An existing identical object is not a
// failure.
func (o *Options) Created(body []byte, err error) error {
	if existsAlready(body) {
		return o.printResult(body, "unchanged")
	}
	if err != nil {
		return err
	}
	return o.Done(body)
}

// existsAlready reports whether the answer refuses an object because an identical one exists.
func existsAlready(body []byte) bool {
	var e v1.Error
	return json.Unmarshal(body, &e) == nil && e.Code == http.StatusConflict &&
		!strings.Contains(e.Message, "is not applied yet") &&
		(e.Result == "lbrule-exists error" || e.Result == "fwrule-exists error" || strings.HasSuffix(e.Message, "exists already with the same content"))
}

// AllFlags are the flags of a command that deletes all objects of a kind.
type AllFlags struct {
	All bool
	yes bool
}

// Register adds the flags to a command.
func (f *AllFlags) Register(fs interface {
	BoolVar(p *bool, name string, value bool, usage string)
	BoolVarP(p *bool, name, short string, value bool, usage string)
}, what string) {
	fs.BoolVar(&f.All, "all", false, what)
	fs.BoolVarP(&f.yes, "yes", "y", false, "with --all: do not ask")
}

// Agreed asks for a confirmation at a terminal, and never in scripts.
func (f *AllFlags) Agreed(o *Options, count int, what string) error {
	in, ok := o.Env.Stdin.(*os.File)
	if f.yes || count == 0 || !ok || !term.IsTerminal(int(in.Fd())) {
		return nil
	}
	fmt.Fprintf(o.Env.Stderr, "Delete %s? [y/N] ", Count(count, what))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(answer)); err != nil || word != "y" && word != "yes" {
		return Exit(ExitRefused, errors.New("nothing deleted"))
	}
	return nil
}

// Count describes a number of objects: "1 service" or "3 services". A negative number stands for
// all.
func Count(n int, what string) string {
	switch {
	case n < 0:
		return "all " + what + "s"
	case n == 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
