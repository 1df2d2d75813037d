package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/host/build"
)

const manualHead = `.\" Generated from the help of loxicmd by tools/refdoc (make generate). Do not edit.
.TH LOXICMD 1 "" loxilb "User commands"
.SH NAME
loxicmd \- command line of the load balancer loxilb
.SH SYNOPSIS
.B loxicmd
.I COMMAND
.RI [ ARGUMENT ...]
.RI [ FLAG ...]
.SH DESCRIPTION
`

const manualTail = `.SH TIMES
A time is a number of seconds (60), or has a unit (60s, 1m, 500ms), in flags, files and requests.
.SH ENVIRONMENT
.TP
.B LOXICMD_CONFIG
File of contexts, in place of
.IR ~/.config/loxilb/config.yaml .
.TP
.B LOXILB_COMPAT
With 1, tables have all columns and cells of the existing loxilb, for scripts that parse them.
.SH FILES
.TP
.I /run/loxilb/netns\-COOKIE.sock
Socket of the daemon of this network namespace, the default server.
.TP
.I /tmp/loxilbtoken
Token of set login, if the file belongs to the user.
.TP
.I ~/.config/loxilb/config.yaml
Contexts:
.nf
current\-context: prod
contexts:
\- {name: prod, server: "https://10.0.0.1:8091", cacert: /etc/loxilb/ca.pem, token: ...}
.fi
.SH SEE ALSO
.BR loxilb (8),
docs/ of the package
`

// manual returns docs/man/loxicmd.1, made of the commands and their help.
func manual() string {
	root := cli.Root(session.Env{Build: build.Info{Version: "1"}})
	w := &manualWriter{seen: map[string]string{}, path: everywhere}
	w.b.WriteString(manualHead)
	w.text(root.Long)
	w.b.WriteString(".SH FLAGS OF ALL COMMANDS\n")
	w.flags(root.LocalFlags())
	w.b.WriteString(".SH FLAGS OF LISTS\n")
	w.common(root)
	w.b.WriteString(".SH COMMANDS\n")
	w.commands(root)
	w.b.WriteString(manualTail)
	return w.b.String()
}

// A manualWriter writes commands in the language of manual pages. It explains a flag once.
type manualWriter struct {
	b    strings.Builder
	seen map[string]string // the command that explains a flag, or everywhere; by the flag's name and text
	path string            // the current command
}

const everywhere = "everywhere" // the command of flags that most commands have

// common describes the flags that most commands of a verb have, such as --selector of get.
func (w *manualWriter) common(root *cobra.Command) {
	get, _, _ := root.Find([]string{"get"})
	lists, first := 0, map[string]*pflag.Flag{}
	count := map[string]int{}
	for _, c := range get.Commands() {
		if !c.HasLocalFlags() {
			continue
		}
		lists++
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			count[f.Name+f.Usage]++
			first[f.Name+f.Usage] = f
		})
	}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	for key, f := range first {
		if count[key] > lists/2 {
			set.AddFlag(f)
		}
	}
	w.flags(set)
	for _, name := range []string{"get", "describe"} {
		verb, _, _ := root.Find([]string{name})
		for _, c := range verb.Commands() {
			if f := c.LocalFlags().Lookup("selector"); f != nil {
				w.seen[f.Name+f.Usage] = everywhere
			}
		}
	}
}

// commands writes the commands below c.
func (w *manualWriter) commands(c *cobra.Command) {
	var plain []*cobra.Command // commands with neither a long text nor unexplained flags
	for _, sub := range c.Commands() {
		switch {
		case sub.Hidden || sub.Name() == "help":
		case sub.Name() == "describe":
			w.describe(sub)
		case sub.HasSubCommands():
			if sub.Runnable() && sub.HasLocalFlags() {
				w.command(sub)
			}
			w.commands(sub)
		case sub.Long == "" && !w.hasUnexplainedFlag(sub):
			plain = append(plain, sub)
		default:
			w.command(sub)
		}
	}
	if len(plain) == 0 || !c.HasParent() {
		for _, sub := range plain {
			w.command(sub)
		}
		return
	}
	fmt.Fprintf(&w.b, ".SS %s: other commands\n", escape(pathOf(c)))
	for _, sub := range plain {
		fmt.Fprintf(&w.b, ".TP\n.B %s\n", escape(useOf(sub)))
		w.text(sub.Short + ".")
	}
}

// describe writes the commands that show an object in full as one: they differ only in its kind.
func (w *manualWriter) describe(c *cobra.Command) {
	var kinds []string
	for _, sub := range c.Commands() {
		kinds = append(kinds, sub.Name())
	}
	fmt.Fprintf(&w.b, ".SS describe KIND [NAME...]\n")
	w.text(c.Short + ": its fields, problems, status and last events. KIND is one of " + strings.Join(kinds, ", ") + ". NAME of lb is a name or a key, such as 20.20.20.1:2020/tcp.")
}

// hasUnexplainedFlag reports whether a command has a flag that is not explained yet.
func (w *manualWriter) hasUnexplainedFlag(c *cobra.Command) (found bool) {
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { found = found || w.seen[f.Name+f.Usage] == "" })
	return found
}

// command writes a command's use, text and flags.
func (w *manualWriter) command(c *cobra.Command) {
	w.path = pathOf(c)
	fmt.Fprintf(&w.b, ".SS %s\n", escape(useOf(c)))
	if len(c.Aliases) > 0 {
		w.text("Aliases: " + strings.Join(c.Aliases, ", ") + ".")
		w.b.WriteString(".PP\n")
	}
	if c.Long == "" {
		w.text(c.Short + ".")
	} else {
		w.text(c.Long)
	}
	w.flags(c.LocalFlags())
}

// flags explains flags, and names the flags that another command has explained.
func (w *manualWriter) flags(set *pflag.FlagSet) {
	before := map[string][]string{}
	set.VisitAll(func(f *pflag.Flag) {
		switch where := w.seen[f.Name+f.Usage]; where {
		case everywhere:
		case "":
			w.seen[f.Name+f.Usage] = w.path
			w.flag(f)
		default:
			before[where] = append(before[where], "--"+f.Name)
		}
	})
	for _, where := range slices.Sorted(maps.Keys(before)) {
		w.b.WriteString(".PP\n")
		w.text("See " + where + " for " + strings.Join(before[where], ", ") + ".")
	}
}

func (w *manualWriter) flag(f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	names := "--" + f.Name
	if f.Shorthand != "" {
		names = "-" + f.Shorthand + ", " + names
	}
	if value != "" {
		value = "= " + value
	}
	fmt.Fprintf(&w.b, ".TP\n.BI %s\n", escape(`"`+names+`"`+value))
	if d := f.DefValue; !slices.Contains([]string{"", "0", "0s", "false", "[]"}, d) {
		usage += " (default " + d + ")"
	}
	w.text(usage)
}

// text writes sentences; lines that are indented stay as they are.
func (w *manualWriter) text(s string) {
	literal := false
	for line := range strings.Lines(strings.TrimRight(s, "\n") + "\n") {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  "); indented != literal && line != "" {
			literal = indented
			w.b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[literal])
		}
		if line == "" {
			line = ".PP"
		} else {
			line = escape(line)
		}
		w.b.WriteString(line + "\n")
	}
	if literal {
		w.b.WriteString(".fi\n")
	}
}

func useOf(c *cobra.Command) string {
	return strings.TrimSuffix(strings.TrimPrefix(c.UseLine(), "loxicmd "), " [flags]")
}

func pathOf(c *cobra.Command) string { return strings.TrimPrefix(c.CommandPath(), "loxicmd ") }

// escape keeps hyphens as typed, and lines from being taken as requests.
func escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
