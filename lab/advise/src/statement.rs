//! SQL statements, with names quoted.
//!
//! A fill factor belongs to what holds rows. A partitioned table holds none, and PostgreSQL refuses to set its fill
//! factor: each partition has its own, and a partition that is made later begins with 100.
//! `ALTER TABLE ... SET (fillfactor)` does not go down to the children of an inheritance either. So each table has a
//! statement of its own.

use crate::table::Table;

/// Returns `name` as an identifier: in double quotes unless it is a plain lower-case word that PostgreSQL does not
/// reserve.
pub fn identifier(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(plain) && name.chars().all(|c| plain(c) || c.is_ascii_digit());
    if is_plain && !RESERVED.contains(&name) { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Returns the table's name with its schema's.
pub fn qualified(table: &Table) -> String {
    format!("{}.{}", identifier(&table.schema), identifier(&table.name))
}

/// Sets the fill factor of `table`.
pub fn set_fillfactor(table: &Table, fillfactor: u32) -> String {
    format!("ALTER TABLE {} SET (fillfactor = {fillfactor});", qualified(table))
}

/// PostgreSQL's words that are no name of a table or a schema without quotes: the categories R, T and C of
/// `pg_get_keywords()` in versions 10 to 18, and a few that are reserved in SQL. A word too many costs a pair of
/// quotes.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "json",
    "json_array",
    "json_arrayagg",
    "json_exists",
    "json_object",
    "json_objectagg",
    "json_query",
    "json_scalar",
    "json_serialize",
    "json_table",
    "json_value",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "merge_action",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, written) in [
            ("orders", "orders"),
            ("order_line_2", "order_line_2"),
            ("Orders", "\"Orders\""),
            ("order", "\"order\""),
            ("user", "\"user\""),
            ("2026", "\"2026\""),
            ("", "\"\""),
            ("größe", "\"größe\""),
            ("a b", "\"a b\""),
            ("say \"hello\"; DROP TABLE x", "\"say \"\"hello\"\"; DROP TABLE x\""),
        ] {
            assert_eq!(identifier(name), written);
        }
        assert!(RESERVED.is_sorted());
    }
}
