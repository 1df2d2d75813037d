// Package commandline explains errors of command lines.
package commandline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// FlagError rewrites cobra's error about a flag as a sentence that names the flag and its value.
func FlagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if name := lb.Suggest(unknown.GetSpecifiedName(), names); name != "" && unknown.GetSpecifiedShortnames() == "" {
			return fmt.Errorf("unknown flag --%s of %s; did you mean --%s?", unknown.GetSpecifiedName(), cmd.CommandPath(), name)
		}
		if short := unknown.GetSpecifiedShortnames(); short != "" && strings.Trim(short, "0123456789") == "" {
			return fmt.Errorf("-%s is not an argument of %s: numbers must not be negative", short, cmd.CommandPath())
		}
		return err
	}
	var (
		flag   *pflag.InvalidValueError
		number *strconv.NumError
		field  *lb.FieldError
	)
	if errors.As(err, &flag) && errors.As(err, &field) {
		return fieldError(flag, field)
	}
	if errors.As(err, &flag) && flag.GetFlag().Value.Type() == "duration" {
		return fmt.Errorf("--%s %q is not a duration such as 60s or 1m", flag.GetFlag().Name, flag.GetValue())
	}
	if !errors.As(err, &flag) || !errors.As(err, &number) {
		return err
	}
	what := "is not a whole number"
	if number.Func == "ParseBool" {
		what = "is not true or false"
	}
	switch {
	case errors.Is(number, strconv.ErrRange):
		what = "is out of range"
	case number.Func == "ParseUint" && strings.HasPrefix(number.Num, "-"):
		what = "is negative"
	}
	return fmt.Errorf("--%s %q %s", flag.GetFlag().Name, flag.GetValue(), what)
}

// fieldError names the flag of a refused value instead of its field. It names both if the field is
// only a part of the flag's value.
func fieldError(flag *pflag.InvalidValueError, field *lb.FieldError) error {
	name := "--" + flag.GetFlag().Name
	if lb.Printable(flag.GetValue()) != field.Value {
		return fmt.Errorf("%s: %w", name, field)
	}
	named := *field
	named.Field = name
	return &named
}
