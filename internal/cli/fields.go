package cli

import (
	"slices"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// fieldFlags are the flags that the fields of lb declare: what they are called, what they take and what their help is
// stands there.
type fieldFlags struct{ service lb.Service }

func (f *fieldFlags) register(cmd *cobra.Command) {
	for _, field := range flagFields() {
		flag := cmd.Flags().VarPF(&fieldFlag{field, &f.service}, field.Flag, "", field.Usage())
		if field.IsBool() {
			flag.NoOptDefVal = "true"
		}
		if words := field.Choices(); len(words) > 0 {
			names := make([]string, len(words))
			for i, w := range words {
				names[i] = w.Word + "\t" + w.Help
			}
			_ = cmd.RegisterFlagCompletionFunc(field.Flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for a flag that is not there
		}
	}
}

// entry has the properties that the flags give.
func (f *fieldFlags) entry() (e v1.LoadbalanceEntry) {
	properties := v1.PropertiesOf[v1.LoadbalanceEntry]()
	for _, field := range flagFields() {
		if !field.IsDefault(&f.service) {
			properties.Set(&e, field.Property, field.Value(&f.service))
		}
	}
	return e
}

func flagFields() []lb.Field[lb.Service] {
	all := append(lb.Fields(), lb.KeyFields()...)
	return slices.DeleteFunc(all, func(f lb.Field[lb.Service]) bool { return f.Flag == "" })
}

// fieldFlag is one of them, as a pflag.Value.
type fieldFlag struct {
	field   lb.Field[lb.Service]
	service *lb.Service
}

// Set reads the value.
func (f *fieldFlag) Set(s string) error { return f.field.SetFlag(f.service, s) }

// String is the value; "" for a default that says nothing.
func (f *fieldFlag) String() string {
	if f.field.IsDefault(f.service) && len(f.field.Choices()) == 0 {
		return ""
	}
	return f.field.Show(f.service)
}

// Type is the name of the value in the help.
func (f *fieldFlag) Type() string {
	if len(f.field.Choices()) > 0 {
		return "word"
	}
	switch f.field.Value(f.service).(type) {
	case bool:
		return "bool"
	case []string:
		return "list"
	case int:
		return "number"
	}
	return "text"
}
