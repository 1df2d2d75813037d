package session

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// FlagError explains an error of a flag.
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
			return fmt.Errorf("-%s is not an argument of %s: numbers there are not negative", short, cmd.CommandPath())
		}
		return err
	}
	var (
		flag   *pflag.InvalidValueError
		number *strconv.NumError
		field  *lb.FieldError
	)
	if errors.As(err, &flag) && errors.As(err, &field) {
		return field
	}
	if errors.As(err, &flag) && flag.GetFlag().Value.Type() == durationType {
		return fmt.Errorf("--%s %q is not a duration such as 60, 60s or 1m", flag.GetFlag().Name, flag.GetValue())
	}
	if !errors.As(err, &flag) || !errors.As(err, &number) {
		return err
	}
	what := "is not a whole number"
	if number.Func == "ParseBool" {
		what = "is not true or false"
	}
	if errors.Is(number, strconv.ErrRange) {
		what = "is out of range"
	}
	return fmt.Errorf("--%s %q %s", flag.GetFlag().Name, flag.GetValue(), what)
}

// AtLeast refuses a flag's number that is less than least.
func AtLeast(least int, flag string, n int) error {
	if n < least {
		return fmt.Errorf("--%s %d is out of range (allowed: %d or more)", flag, n, least)
	}
	return nil
}

// durationType is the type of a duration flag in the help.
const durationType = "duration"

// durationFlag is a time.Duration that also accepts a number of seconds, like the existing loxicmd.
type durationFlag time.Duration

// DurationVar defines a flag that takes 60, 60s and 1m.
func DurationVar(fs *pflag.FlagSet, d *time.Duration, name, short string, value time.Duration, help string) {
	*d = value
	fs.VarP((*durationFlag)(d), name, short, help)
}

// Set reads the value.
func (d *durationFlag) Set(text string) error {
	v, err := lb.ParseDuration(text)
	if err == nil {
		*d = durationFlag(v)
	}
	return err
}

func (d *durationFlag) String() string {
	if *d == 0 {
		return "0s"
	}
	return time.Duration(*d).String()
}

// Type returns the type of the value in the help.
func (d *durationFlag) Type() string { return durationType }
