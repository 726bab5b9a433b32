\set w random(1, :warehouses)
\set d random(1, 10)
\set c random(1, 3000)
SELECT l.* FROM (SELECT o_id FROM orders WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = :c ORDER BY o_id DESC LIMIT 1) o
JOIN order_line l ON l.ol_w_id = :w AND l.ol_d_id = :d AND l.ol_o_id = o.o_id;
