package main

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"loxilb/internal/lb"
)

const fieldsHead = `<!-- Generated from internal/lb by tools/refdoc (make generate). Do not edit. -->

# Fields of a service

Each field of a service, with its flag of ` + "`loxicmd create lb`" + ` and its property in JSON and YAML
([configuration.md](configuration.md)). Unless stated, the default is empty, 0, or the word in bold.
[api/openapi.yaml](../api/openapi.yaml) has types and bounds of properties,
[man/loxicmd.1](man/loxicmd.1) those of flags.
`

// schemas are the API's schemas, whose descriptions are used for fields without a flag's help.
type schemas map[string]struct {
	Properties map[string]struct {
		Description string `json:"description"`
	} `json:"properties"`
}

// fields returns the page.
func fields(openapi string) (string, error) {
	var spec struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	if err := yaml.Unmarshal([]byte(openapi), &spec); err != nil {
		return "", fmt.Errorf("api/openapi.yaml: %w", err)
	}
	api := spec.Components.Schemas
	var b strings.Builder
	b.WriteString(fieldsHead)
	b.WriteString("\n## Which packets\n\n" + table(lb.KeyFields(), api))
	b.WriteString("\n## Endpoints\n\nFor each entry of `endpoints`; on the command line `IP:WEIGHT` or `IP:PORT:WEIGHT`, followed by `@LEVEL` for a backup.\n\n" + table(lb.EndpointFields(), api))
	b.WriteString("\n## Settings\n\n" + table(lb.Fields(), api))
	return b.String(), nil
}

func table[T any](list []lb.Field[T], api schemas) string {
	var b strings.Builder
	b.WriteString("| field | flag | property | |\n|---|---|---|---|\n")
	for _, f := range list {
		flag := ""
		if f.Flag != "" {
			flag = "`--" + f.Flag + "`"
		} else if says := api.says(f.Property); says != "" {
			f.Help, f.Allowed = says, ""
		}
		fmt.Fprintf(&b, "| %s | %s | `%s` | %s |\n", f.Name, flag, f.Property, meaning(&f))
	}
	return b.String()
}

// says returns the API's description of a property.
func (s schemas) says(property string) string {
	name, arg, is := strings.Cut(property, ".")
	for _, schema := range []string{"LoadbalanceEntry", "Endpoint"} {
		if d := s[schema].Properties[name].Description; d != "" {
			return inOneLine(d)
		}
	}
	if is {
		return inOneLine(s["ServiceArguments"].Properties[arg].Description)
	}
	return ""
}

func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// meaning returns the help of a field, its form, and its words.
func meaning[T any](f *lb.Field[T]) string {
	var parts []string
	for _, part := range []string{f.Help, f.Allowed} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	var zero T
	for _, c := range f.Choices() {
		word := "`" + c.Word + "`"
		switch {
		case !c.Available:
			word += " (not part of this build)"
		case c.Word == f.Show(&zero):
			word = "**" + word + "**" + help(c)
		default:
			word += help(c)
		}
		if f.Numbered {
			word = fmt.Sprintf("%d ", c.Number) + word
		}
		parts = append(parts, word)
	}
	return strings.ReplaceAll(strings.Join(parts, "<br>"), "|", `\|`)
}

func help(c lb.Choice) string {
	if c.Help == "" {
		return ""
	}
	return ": " + c.Help
}
