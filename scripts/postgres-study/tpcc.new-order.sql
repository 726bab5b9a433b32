\set w random(1, :warehouses)
\set d random(1, 10)
\set c random(1, 3000)
\set lines random(5, 15)
SELECT new_order(:w, :d, :c, :lines);
