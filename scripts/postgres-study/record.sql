-- Prints the statistics of all tables in the form of lab/advise/testdata/advice.txt:
--   psql -X -q -t -A -d DATABASE -f record.sql
SELECT format(E'table %s rows=%s heap=%s index=%s toast=%s fillfactor=%s inserted=%s updated=%s hot=%s deleted=%s\n%s%s',
  c.relname, c.reltuples::bigint, pg_relation_size(c.oid), pg_indexes_size(c.oid),
  CASE WHEN c.reltoastrelid = 0 THEN 0 ELSE pg_total_relation_size(c.reltoastrelid) END,
  coalesce((SELECT option_value FROM pg_options_to_table(c.reloptions) WHERE option_name = 'fillfactor'), '100'),
  s.n_tup_ins, s.n_tup_upd, s.n_tup_hot_upd, s.n_tup_del,
  (SELECT string_agg(format(E'  column %s %s %s %s %s\n', a.attname, coalesce(w.avg_width::text, '-'), coalesce(w.null_frac, 0),
     CASE WHEN a.attlen > 0 THEN a.attlen::text ELSE '-' END, a.attalign), '' ORDER BY a.attnum)
   FROM pg_attribute a LEFT JOIN pg_stats w ON w.schemaname = 'public' AND w.tablename = c.relname AND w.attname = a.attname
   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  (SELECT string_agg(format(E'  index %s %s\n', x.relname, (SELECT string_agg(a.attname, ',' ORDER BY array_position(i.indkey::int2[], a.attnum))
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY(i.indkey))), '' ORDER BY x.relname)
   FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid WHERE i.indrelid = c.oid))
FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
ORDER BY c.relname;
