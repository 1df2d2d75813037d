package session

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// nameProperties records the words of a command line for properties of its request.
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

// NameEndpoints records the words for properties of the request's endpoints.
func NameEndpoints(cmd *cobra.Command) {
	fields := lb.EndpointFields()
	for i := range fields {
		fields[i].Property = "endpoints." + fields[i].Property
	}
	nameProperties(cmd, fields)
	cmd.Annotations["endpoints"] = lb.FieldEndpoint
}

// places are the parts of a property's path that a command line does not have.
var places = regexp.MustCompile(`^lbAttr\[\d+\]\.|\[\d+\]`)

// asTyped replaces the property at the start of a server's sentence by the flag that sets it, or
// by its name in help: the command has it in its annotations, or has a flag of the same name.
func (o *Options) asTyped(sentence string) string {
	property, rest, _ := strings.Cut(sentence, " ")
	if o.command == nil {
		return sentence
	}
	path := places.ReplaceAllString(property, "")
	word := o.command.Annotations[path]
	if word == "" {
		last := path[strings.LastIndexByte(path, '.')+1:]
		o.command.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if name := plain(f.Name); name == plain(path) || name == plain(last) {
				word = "--" + f.Name
			}
		})
	}
	if word == "" {
		return sentence
	}
	return word + " " + rest
}

// plain returns a name without the differences in spelling between properties and flags.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
}
