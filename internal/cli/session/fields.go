package session

import (
	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// FieldFlags are the flags of the fields of a T, which is an O in the API. Package lb defines their
// names, values and help.
type FieldFlags[T, O any] struct {
	object T
	fields []lb.Field[T]
}

// NewFieldFlags returns the flags of fields.
func NewFieldFlags[T, O any](fields []lb.Field[T]) FieldFlags[T, O] {
	return FieldFlags[T, O]{fields: fields}
}

// Register adds the flags to a command.
func (f *FieldFlags[T, O]) Register(cmd *cobra.Command) {
	nameProperties(cmd, f.fields)
	for _, field := range f.fields {
		if field.Flag == "" {
			continue
		}
		flag := cmd.Flags().VarPF(&fieldFlag[T]{field, &f.object}, field.Flag, "", field.Usage())
		if field.IsBool() {
			flag.NoOptDefVal = "true"
		}
		if words := field.Choices(); len(words) > 0 {
			var names []string
			for _, w := range words {
				if w.Available {
					names = append(names, w.Word+"\t"+w.Help)
				}
			}
			_ = cmd.RegisterFlagCompletionFunc(field.Flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // fails for a missing flag
		}
	}
}

// Entry returns the properties that the flags set.
func (f *FieldFlags[T, O]) Entry() (e O) {
	properties := v1.PropertiesOf[O]()
	for _, field := range f.fields {
		if !field.IsDefault(&f.object) {
			properties.Set(&e, field.Property, field.Value(&f.object))
		}
	}
	return e
}

// fieldFlag is the flag of a field, as a pflag.Value.
type fieldFlag[T any] struct {
	field  lb.Field[T]
	object *T
}

// Set reads the value.
func (f *fieldFlag[T]) Set(s string) error { return f.field.SetFlag(f.object, s) }

// String returns the value; "" for an empty default.
func (f *fieldFlag[T]) String() string {
	if f.field.IsDefault(f.object) && len(f.field.Choices()) == 0 {
		return ""
	}
	return f.field.Show(f.object)
}

// Type returns the name of the value in the help.
func (f *fieldFlag[T]) Type() string {
	if len(f.field.Choices()) > 0 {
		return "word"
	}
	if f.field.IsTime() {
		return "time"
	}
	switch f.field.Value(f.object).(type) {
	case bool:
		return "bool"
	case []string:
		return "list"
	case int:
		return "number"
	}
	return "text"
}
