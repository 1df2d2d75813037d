package main

import (
	"cmp"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"loxilb/internal/lb"
	"loxilb/tools/markdown"
)

const fieldsHead = `<!-- Generated from internal/lb by tools/refdoc (make generate). Do not edit. -->

# Fields of a service

Each field of a service: its flag of ` + "`loxicmd create lb`" + `, and its property in JSON and YAML, in
` + "`serviceArguments`" + ` unless written with /. loxicmd(1) explains flags, api/openapi.yaml
properties; this page explains fields without a flag. Words with - are not part of this build.
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
	b.WriteString("\n## Which packets\n\n" + items(lb.KeyFields(), api))
	b.WriteString("\n## Endpoints\n\nFor each entry of `endpoints`; on the command line `IP:WEIGHT` or `IP:PORT:WEIGHT`, followed by\n`@LEVEL` for a backup.\n\n" + items(lb.EndpointFields(), api))
	b.WriteString("\n## Settings\n\n" + items(lb.Fields(), api))
	return b.String(), nil
}

func items[T any](list []lb.Field[T], api schemas) string {
	var b strings.Builder
	for _, f := range list {
		name := "`/" + f.Property + "`"
		if arg, is := strings.CutPrefix(f.Property, "serviceArguments."); is {
			name = "`" + arg + "`"
		}
		text := meaning(&f, api.description(f.Property))
		if f.Flag != "" {
			name, text = "`--"+f.Flag+"`, "+name, numberedWords(&f)
		}
		b.WriteString(markdown.Item(strings.TrimSuffix(name+": "+text, ": ")))
	}
	return b.String()
}

// description returns the API's description of a property.
func (s schemas) description(property string) string {
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

// meaning returns the API's description of a field, or its help if there is none.
func meaning[T any](f *lb.Field[T], description string) string {
	return strings.TrimSuffix(cmp.Or(description, f.Help), ".")
}

// numberedWords returns the words of a field with the numbers that requests may use instead.
func numberedWords[T any](f *lb.Field[T]) string {
	if !f.Numbered {
		return ""
	}
	var list []string
	for _, c := range f.Choices() {
		word := fmt.Sprintf("%d `%s`", c.Number, c.Word)
		if !c.Available {
			word += " -"
		}
		list = append(list, word)
	}
	return strings.Join(list, ", ")
}
