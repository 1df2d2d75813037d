package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"loxilb/internal/cli"
	"loxilb/internal/cli/session"
)

// TestCommands checks that each command of loxicmd in the documents, in a sentence or with its
// output, exists with its flags, and so do the flags of loxilb. TestDocs of test/net/compat runs
// commands on lines of their own.
func TestCommands(t *testing.T) {
	t.Parallel()
	pages, err := os.ReadFile("man/loxilb.8")
	if err != nil {
		t.Fatal(err)
	}
	manual := strings.ReplaceAll(string(pages), `\-`, "-")
	list, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == "compatibility.md" }) // it names missing commands, and has a test of its own
	commands := 0
	for _, file := range append(list, "../README.md", "../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(loxicmd|loxilb) ([^`\n]+)`|(?m)^    (?:[#$] )?(loxicmd|loxilb) ([^\n]+)").FindAllStringSubmatch(string(text), -1) {
			commands++
			words := strings.Fields(m[2] + m[4])
			if m[1]+m[3] == "loxilb" {
				for _, flag := range flags(words) {
					if !strings.Contains(manual, flag) {
						t.Errorf("%s: %s: man/loxilb.8 does not have %s", file, m[0], flag)
					}
				}
				continue
			}
			if missing := missing(cli.Root(session.Env{}), words); missing != "" {
				t.Errorf("%s: %s: loxicmd does not have %s", file, m[0], missing)
			}
		}
	}
	if commands < 100 {
		t.Errorf("only %d commands were found", commands)
	}
}

// missing returns the first word of a command line that is neither a command nor a flag, or "".
// After the command, words are arguments.
func missing(cmd *cobra.Command, words []string) string {
	for cmd.HasSubCommands() && len(words) > 0 && regexp.MustCompile(`^[a-z|]+$`).MatchString(words[0]) {
		name, _, _ := strings.Cut(words[0], "|") // the first of several alternatives
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == name || c.HasAlias(name) })
		if i < 0 {
			return name
		}
		cmd, words = cmd.Commands()[i], words[1:]
	}
	for _, flag := range flags(words) {
		if name := strings.TrimPrefix(flag, "--"); name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			return flag
		}
	}
	return ""
}

// flags returns the flags of a command line that are written out.
func flags(words []string) (list []string) {
	for _, word := range words {
		if word == "#" || word == "|" || word == ">" {
			break
		}
		if m := regexp.MustCompile(`^\[?(--[a-z][\w-]*)`).FindStringSubmatch(word); m != nil {
			list = append(list, m[1])
		}
	}
	return list
}
