package users

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"loxilb/internal/cli/session"
)

// configCommand manages the contexts of loxicmd.
func configCommand(o *session.Options) *cobra.Command {
	config := &cobra.Command{
		Use:   "config",
		Short: "Manage contexts: named servers, one of them current",
		Long: "A context names a server, how to reach it, and a token. Contexts are stored in\n" +
			"~/.config/loxilb/config.yaml, or the file in LOXICMD_CONFIG; a file with a token must be\n" +
			"readable only by its owner. Commands without a server flag use the current context; without one,\n" +
			"they use the daemon of this network namespace through its UNIX socket.",
		Example: "  loxicmd config set-context prod --server=https://10.0.0.1:8091 --cacert=/etc/loxilb/ca.pem\n  loxicmd config use-context prod\n" +
			"  loxicmd get lb --context=prod",
		Args: session.NoObject, RunE: session.NeedObject,
	}
	config.AddCommand(getContexts(o), useContext(o), setContext(o), deleteContext(o), view(o))
	return config
}

// name completes the names of contexts.
func name(o *session.Options) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		return o.ContextNames(begin, args...), cobra.ShellCompDirectiveNoFileComp
	}
}

func getContexts(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "get-contexts",
		Short:   "Show contexts and the current one",
		Example: "  loxicmd config get-contexts",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := o.ReadContexts()
			if err != nil {
				return err
			}
			t := session.NewTable("Current", "Name", "Server", "Token")
			for _, one := range c.List {
				current, server, token := "", one.Server, "-"
				if one.Name == c.Current {
					current = "*"
				}
				if server == "" {
					server = "the daemon of this network namespace"
				}
				if one.Token != "" {
					token = "yes"
				}
				t.Add(current, one.Name, server, token)
			}
			return o.Print(t.String())
		},
	}
}

func useContext(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:               "use-context NAME",
		Short:             "Set the current context; \"\" unsets it",
		Example:           "  loxicmd config use-context prod",
		Args:              session.Exactly("the context, as in: loxicmd config use-context prod"),
		ValidArgsFunction: name(o),
		RunE: func(_ *cobra.Command, args []string) error {
			return edit(o, func(c *session.Contexts) error {
				if args[0] != "" && c.Find(args[0]) < 0 {
					return c.NoContext(args[0])
				}
				c.Current = args[0]
				return nil
			})
		},
	}
}

// edit changes the file, and reports it.
func edit(o *session.Options, change func(*session.Contexts) error) error {
	c, err := o.ReadContexts()
	if err != nil {
		return err
	}
	if err := change(&c); err != nil {
		return err
	}
	if err := o.WriteContexts(c); err != nil {
		return err
	}
	return o.Print("success\n")
}

func setContext(o *session.Options) *cobra.Command {
	var secret, current bool
	cmd := &cobra.Command{
		Use:   "set-context NAME",
		Short: "Create or change a context from the flags that name a server",
		Long: "Stores the values of --server (or --socket, or -s, -p and --protocol), --cacert, --insecure and\n" +
			"--token. Omitted flags keep their stored values. --server=\"\" means the daemon of this network\n" +
			"namespace.",
		Example: "  loxicmd config set-context prod --server=https://10.0.0.1:8091 --cacert=/etc/loxilb/ca.pem --current\n" +
			"  loxicmd config set-context prod --token-stdin </root/prod.token\n  loxicmd config set-context here --server=unix:/run/loxilb/loxilb.sock",
		Args:              session.Exactly("its name, as in: loxicmd config set-context prod --server=https://10.0.0.1:8091"),
		ValidArgsFunction: name(o),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, cacert, insecure, token := o.Given()
			if secret {
				if token {
					return errors.New("--token-stdin cannot be combined with --token")
				}
				line, err := bufio.NewReader(io.LimitReader(o.Env.Stdin, 64<<10)).ReadString('\n')
				if given.Token = strings.TrimSpace(line); given.Token == "" {
					return errors.Join(errors.New("--token-stdin: the first line of standard input has no token"), unlessEnd(err))
				}
				token = true
			}
			return edit(o, func(c *session.Contexts) error {
				i := c.Find(args[0])
				if i < 0 {
					i, c.List = len(c.List), append(c.List, session.Context{Name: args[0]})
				}
				one := &c.List[i]
				if server := o.ServerOf(); server != "" || cmd.Flags().Changed("server") {
					one.Server = server
				}
				if cacert {
					one.CACert = given.CACert
				}
				if insecure {
					one.Insecure = given.Insecure
				}
				if token {
					one.Token = given.Token
				}
				if current {
					c.Current = one.Name
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&secret, "token-stdin", false, "read the token from the first line of standard input, hidden from other users")
	cmd.Flags().BoolVar(&current, "current", false, "make it the current context")
	return cmd
}

func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func deleteContext(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:               "delete-context NAME",
		Short:             "Delete a context",
		Example:           "  loxicmd config delete-context prod",
		Args:              session.Exactly("the context, as in: loxicmd config delete-context prod"),
		ValidArgsFunction: name(o),
		RunE: func(_ *cobra.Command, args []string) error {
			return edit(o, func(c *session.Contexts) error {
				i := c.Find(args[0])
				if i < 0 {
					return c.NoContext(args[0])
				}
				c.List = append(c.List[:i], c.List[i+1:]...)
				if c.Current == args[0] {
					c.Current = ""
				}
				return nil
			})
		},
	}
}

func view(o *session.Options) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:     "view",
		Short:   "Show the file of contexts, without tokens",
		Example: "  loxicmd config view",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			c, err := o.ReadContexts()
			if err != nil {
				return err
			}
			for i := range c.List {
				if c.List[i].Token != "" && !raw {
					c.List[i].Token = "REDACTED"
				}
			}
			if o.Output == "json" {
				return o.PrintRaw(session.Raw(c))
			}
			text, err := yaml.Marshal(c)
			if err != nil {
				return fmt.Errorf("cannot encode the contexts as YAML: %w", err)
			}
			return o.Print(string(text))
		},
	}
	cmd.Flags().BoolVar(&raw, "raw", false, "show the tokens")
	return cmd
}
