package config

import (
	"os"
	"testing"

	"github.com/spf13/pflag"

	"loxilb/internal/contract"
)

// TestContract checks that the daemon's flags and the contract's table agree in both directions.
func TestContract(t *testing.T) {
	t.Parallel()
	cmd := Command(nil, os.LookupEnv, nil)
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	inTable := map[string]bool{}
	for _, row := range contract.AllFlags() {
		inTable[row.Name] = true
		flag := cmd.Flags().Lookup(row.Name)
		switch {
		case flag == nil:
			t.Errorf("--%s: the table says it is %s, and there is no such flag", row.Name, row.State)
		case flag.Shorthand != row.Short && row.Short != "":
			t.Errorf("--%s lacks the short form -%s", row.Name, row.Short)
		case row.State == contract.Same && flag.DefValue != row.Default:
			t.Errorf("--%s is %q by default, and the contract's is %q", row.Name, flag.DefValue, row.Default)
		}
		if row.State != contract.Unsupported {
			continue
		}
		value := "--" + row.Name + "=x"
		if row.Default == "false" {
			value = "--" + row.Name
		}
		if c, code, msg := run(nil, value); c != nil || code != ExitUsage || msg == "" {
			t.Errorf("%s: the table says it is missing, but it is accepted: %d %s", value, code, msg)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !inTable[f.Name] {
			t.Errorf("--%s is not in internal/contract: add a row, with the state Ours if the contract has no such flag", f.Name)
		}
	})
}
