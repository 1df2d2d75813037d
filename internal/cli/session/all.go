package session

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// AllFlags are those of a command that deletes all objects of a kind.
type AllFlags struct {
	All bool
	yes bool
}

// Register gives a command the flags.
func (f *AllFlags) Register(fs interface {
	BoolVar(p *bool, name string, value bool, usage string)
	BoolVarP(p *bool, name, short string, value bool, usage string)
}, what string) {
	fs.BoolVar(&f.All, "all", false, what)
	fs.BoolVarP(&f.yes, "yes", "y", false, "with --all: do not ask")
}

// Agreed asks at a terminal whether all are meant. Scripts, which have none, are not asked.
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

// Count is a number of things in words, as "1 service" or "3 services". A negative number stands
// for all.
func Count(n int, what string) string {
	switch {
	case n < 0:
		return "all " + what + "s"
	case n == 1:
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
