package session

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// nameProperties records the flags of a command for properties of its request.
func nameProperties[T any](cmd *cobra.Command, fields []lb.Field[T]) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	for _, f := range fields {
		word := f.Name
		if f.Flag != "" {
			word = "--" + f.Flag
		}
		cmd.Annotations[f.Property] = word
	}
}

// NameEndpoints records the flags for properties of the request's endpoints.
func NameEndpoints(cmd *cobra.Command) {
	fields := lb.EndpointFields()
	for i := range fields {
		fields[i].Property = "endpoints." + fields[i].Property
	}
	nameProperties(cmd, fields)
	cmd.Annotations["endpoints"] = lb.FieldEndpoint
}

// places matches the parts of a property's path that a command line does not have.
var places = regexp.MustCompile(`^lbAttr\[\d+\]\.|\[\d+\]`)

// restName matches property names that no command line has, unlike words such as port or VIP.
var restName = regexp.MustCompile(`^[a-z]+(_[a-z]+|[A-Z]\w*)$`)

// asTyped is AsTyped for the command that runs.
func (o *Options) asTyped(sentence string) string {
	if o.command == nil {
		return sentence
	}
	return AsTyped(o.command, sentence)
}

// AsTyped replaces the property at the start of an error by the flag that sets it, or by its name
// in help: the command has it in its annotations, has a flag of the same name, or got the quoted
// value as an argument.
func AsTyped(cmd *cobra.Command, sentence string) string {
	property, rest, _ := strings.Cut(sentence, " ")
	path := places.ReplaceAllString(property, "")
	word := cmd.Annotations[path]
	if word == "" {
		last := path[strings.LastIndexByte(path, '.')+1:]
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if name := plain(f.Name); name == plain(path) || name == plain(last) {
				word = "--" + f.Name
			}
		})
	}
	if word == "" && restName.MatchString(property) {
		word = argument(cmd, rest)
	}
	if word == "" {
		return sentence
	}
	return word + " " + rest
}

// argument returns the name in help of the argument whose quoted value begins rest, or "".
func argument(cmd *cobra.Command, rest string) string {
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return ""
	}
	value, _ := strconv.Unquote(quoted) // QuotedPrefix returns valid literals only
	names := strings.Fields(cmd.Use)[1:]
	i := slices.Index(cmd.Flags().Args(), value)
	if i < 0 || len(names) == 0 {
		return ""
	}
	name, optional := strings.CutPrefix(names[min(i, len(names)-1)], "[")
	if optional {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "]"), "...")
	}
	return name
}

// plain returns a name without the differences in spelling between properties and flags.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
}
