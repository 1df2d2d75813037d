package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
	"loxilb/internal/contract"
	"loxilb/test/clitest"
)

// TestContract checks loxicmd against the contract's table: a command and each of its names and
// flags exist exactly if the table says so, and the table has every command.
func TestContract(t *testing.T) {
	t.Parallel()
	root := cli.Root(session.Env{})
	root.InitDefaultCompletionCmd("completion")
	known := map[*cobra.Command]bool{root: true}
	for _, row := range contract.AllCommands() {
		words := strings.Fields(row.Path)
		for _, name := range row.Names() {
			cmd := find(root, append(slices.Clone(words[:len(words)-1]), name))
			if (cmd != nil) != (row.State != contract.Unsupported) {
				t.Errorf("%s, by the name %s: exists %t, but the table has the state %s", row.Path, name, cmd != nil, row.State)
			}
			known[cmd] = true
		}
		if cmd := find(root, words); cmd != nil {
			checkFlags(t, row, cmd)
		}
	}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && !c.HasSubCommands() && !known[c] {
			t.Errorf("%s is not in internal/contract: add a row, with the state Ours if the contract has no such command", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// find returns the command at a path of names, or nil.
func find(root *cobra.Command, path []string) *cobra.Command {
	for _, name := range path {
		i := slices.IndexFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
		if i < 0 {
			return nil
		}
		root = root.Commands()[i]
	}
	return root
}

func checkFlags(t *testing.T, row contract.Command, cmd *cobra.Command) {
	t.Helper()
	without := strings.Fields(row.MissingFlags)
	for f := range strings.FieldsSeq(row.Flags) {
		name, short, _ := strings.Cut(f, ",")
		flag := cmd.Flag(name)
		missing := slices.Contains(without, name)
		switch {
		case missing && flag != nil:
			t.Errorf("%s: the table says it lacks --%s, but it has it", row.Path, name)
		case !missing && flag == nil:
			t.Errorf("%s: the table says it has --%s, but it lacks it", row.Path, name)
		case !missing && flag.Shorthand != short && flag.Name == name && short != "":
			t.Errorf("%s: --%s lacks the short form -%s", row.Path, name, short)
		}
	}
	for _, name := range without {
		if !slices.ContainsFunc(strings.Fields(row.Flags), func(f string) bool { return f == name || strings.HasPrefix(f, name+",") }) {
			t.Errorf("%s: the table lists --%s as missing, but the contract has no such flag", row.Path, name)
		}
	}
}

// TestContractColumns checks that get prints the contract's columns in their order, possibly with
// more.
func TestContractColumns(t *testing.T) {
	t.Parallel()
	for _, row := range contract.AllCommands() {
		if row.State == contract.Unsupported || row.Columns == "" {
			continue
		}
		for flag, columns := range map[string]string{"": row.Columns, " -o wide": row.Wide} {
			if columns == "" {
				columns = row.Columns
			}
			got := clitest.Run(t, "", clitest.NewServer(t, 200, "{}").Args(row.Path+flag)...)
			printed := headerOf(got.Stdout)
			next := 0
			for _, c := range strings.Split(columns, ",") {
				i := slices.Index(printed[next:], strings.ToUpper(c))
				if i < 0 {
					t.Errorf("%s%s: column %s is missing or in the wrong place in %q %s", row.Path, flag, c, printed, got.Stderr)
					continue
				}
				next += i + 1
			}
		}
	}
}

// TestCompatColumns checks that tables have all columns and cells of the contract with
// LOXILB_COMPAT=1, and omit empty and meaningless ones otherwise.
func TestCompatColumns(t *testing.T) {
	t.Parallel()
	const services = `{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","sel":0,"mode":0,"inactiveTimeOut":60},` +
		`"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1,"counter":"1:2"}]}]}`
	s := clitest.NewServer(t, 200, services)
	for _, c := range []struct{ args, compat, want string }{
		{"get lb", "1", "EXT IP,PORT,PROTO,NAME,MARK,SEL,MODE,# OF ENDPOINTS,TIMEOUT,MONITOR"},
		{"get lb", "0", "EXT IP,PORT,PROTO,SEL,MODE,# OF ENDPOINTS,TIMEOUT,MONITOR"},
		{"get lb -o wide", "true", "EXT IP,SEC IPS,SOURCES,HOST,PORT,PROTO,NAME,MARK,SEL,MODE,ENDPOINT,EPORT,WEIGHT,STATE,COUNTERS,STATUS"},
		{"get lb -o wide", "", "EXT IP,PORT,PROTO,SEL,MODE,ENDPOINT,EPORT,WEIGHT,STATE,PACKETS:BYTES,STATUS"},
	} {
		env := session.Env{Getenv: func(name string) string {
			if name == "LOXILB_COMPAT" {
				return c.compat
			}
			return ""
		}}
		got := clitest.RunIn(t, env, "", s.Args(c.args)...)
		if printed := strings.Join(headerOf(got.Stdout), ","); printed != c.want {
			t.Errorf("LOXILB_COMPAT=%s loxicmd %s prints columns %s, want %s\n%s", c.compat, c.args, printed, c.want, got.Stderr)
		}
		if c.args == "get lb" && strings.Contains(got.Stdout, "60s") == (c.compat == "1") {
			t.Errorf("LOXILB_COMPAT=%s: timeouts must have a unit only without compatibility:\n%s", c.compat, got.Stdout)
		}
	}
}

func headerOf(table string) (cells []string) {
	header, _, _ := strings.Cut(table, "\n")
	for cell := range strings.SplitSeq(strings.Trim(header, "|"), "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}
